"""The verbs `serve` (over HTTP) and `export` (to programs that run without Diptych)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from diptych.cli.app import Address, Features, Revision, hold
from diptych.cli.groups import ComputingOptions, grouped
from diptych.cli.outputs import OutFolder
from diptych.runtime.errors import CheckpointError, RecipeError, explained
from diptych.runtime.extras import requires_extra
from diptych.runtime.files import text_of
from diptych.runtime.memory import share_one_arena
from diptych.runtime.terminal import begin

if TYPE_CHECKING:
    from diptych.inference.predictor import Predictor

TOKEN = "DIPTYCH_TOKEN"
Format = Literal["torch", "onnx"]


@grouped
def serve(
    *,
    models: list[str] = Argument(metavar="MODEL", help="Model folders, folders of runs, or user/name on the hub."),
    images: Path | None = Option(
        None, help="Folder of images: the page's examples, and what a retrieval model searches."
    ),
    gallery: Address = None,
    features: Features = None,
    host: str = Option("127.0.0.1", help="Address to listen on; any but loopback needs a token."),
    port: int = Option(8000, min=0, max=65535, help="Port to listen on; 0 takes any free one."),
    deadline: float = Option(10, min=0.1, help="Seconds within which a request is answered or refused."),
    queue: int = Option(64, min=1, help="Requests that may wait; more are refused with 503."),
    batch_size: int = Option(16, min=1, help="Most requests in one batch of a model."),
    token_file: Path | None = Option(None, help=f"File with the token that requests need; default: ${TOKEN}."),
    allow_host: list[str] | None = Option(None, metavar="NAME", help="Host name of the service behind a proxy."),
    computing: ComputingOptions,
) -> None:
    """Answer requests over HTTP, and show a page to try the models."""
    token = _token(token_file)
    begin(f"opening {', '.join(models)}")
    share_one_arena()
    with requires_extra("a service", "serve"):
        from diptych_serve.service.server import bind, make_server, serve
    from diptych.inference.client import is_loopback
    from diptych.runtime.progress import advancing
    from diptych_serve.service.limits import Limits
    from diptych_serve.service.pictures import PictureGallery
    from diptych_serve.service.service import Service

    if token is None and not is_loopback(host):
        raise RecipeError(
            f"--host {host} is open to other machines, but there is no token; set {TOKEN}, or pass --token-file FILE"
        )
    limits = Limits(deadline=deadline, queue=queue, batch=min(batch_size, queue))
    with bind(host, port) as bound:
        opened = _opened(models, features, computing)
        service = Service(opened, None if images is None else PictureGallery(images, gallery), limits)
        if service.gallery is not None:
            print(f"preparing the images in {images}", file=sys.stderr, flush=True)
        service.warm(advancing)
        where = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"

        def ready() -> None:
            for name, tasks in service.tasks.items():
                print(f"{name}: {', '.join(tasks) or 'none of the tasks that a service offers'}", file=sys.stderr)
            print(f"serving on {where} (documentation: {where}/docs); Ctrl-C stops it", file=sys.stderr, flush=True)

        serve(make_server(service, token, (host, *(allow_host or ())), ready), bound)


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN, "").strip() or None
    with explained(RecipeError, f"cannot read --token-file {file}", "pass a text file with the token"):
        token = text_of(file).strip()
    if not token:
        raise RecipeError(f"--token-file {file} is empty; write the token into it")
    return token


def _opened(models: list[str], features: Path | None, computing: ComputingOptions) -> dict[str, Predictor]:
    """Return name -> opened model.

    The name is the last part of the path, with a number if it is taken. `features`: precomputed features, for models
    without a detector, or a store.
    """
    from diptych.api.model import load
    from diptych.inference.predictor import Predictor

    opened, read = dict[str, Predictor](), False
    for source in models:
        path = Path(source)
        whole = Path(os.path.abspath(path)) if path.exists() else path  # a link keeps its own name
        stem = whole.parent.name if whole.name == "model" else whole.name
        name, number = stem, 2
        while name in opened:
            name, number = f"{stem}-{number}", number + 1
        opened[name] = load(source, **vars(computing)).predictor
        if features is not None:
            given = Predictor(opened[name].folder, features)
            if given.stored is not None or _reads_given(given):
                opened[name], read = given, True
                _ = given.detector  # refuses a store of another detector now
    if not opened:
        raise CheckpointError("no model to serve; pass a model folder or the folder of a run")
    if features is not None and not read:
        raise RecipeError(
            f"--features {features} needs a model for precomputed features, but each of these models has its own "
            f"detector: {', '.join(opened)}; leave out --features"
        )
    return opened


def _reads_given(predictor: Predictor) -> bool:
    """Return True if the model reads precomputed features, instead of features of its own detector."""
    return predictor.folder.contract.is_given or predictor.folder.detector is None


def export(
    *,
    model: str = Argument(metavar="MODEL", help="Model folder, folder of a run, or user/name on the hub."),
    out: Annotated[Path, OutFolder("programs")] = Option(..., help="Folder to write the programs and their runner to."),
    form: Format = Option("onnx", "--format", help="Format of the programs: torch (torch.export) or onnx."),
    revision: Revision = None,
) -> None:
    """Write a model as programs that run without Diptych."""
    from diptych_serve.export.write import export

    hold(out, "programs", temporary=False)
    from diptych.inference.open import open_folder

    made = export(open_folder(model, revision=revision), out, form, lambda line: print(line, file=sys.stderr))
    print(
        f"{out}: {', '.join(made)}; try it: python {out / 'run.py'} PICTURE" + (" QUESTION" if "answer" in made else "")
    )
