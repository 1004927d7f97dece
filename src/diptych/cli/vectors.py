"""The verbs `encode` (images to vectors) and `match` (how well texts match images)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from diptych.cli.app import AsJson, Features, MaybeModel
from diptych.cli.groups import ComputingOptions, grouped
from diptych.cli.images import Failures, find_images
from diptych.cli.outputs import OutFile
from diptych.cli.predict import IN_FLIGHT, Images, OneImage, Server
from diptych.runtime.errors import DataError, RecipeError, UnsupportedError
from diptych.runtime.files import write_atomically
from diptych.runtime.outputs import refuse_inputs
from diptych.runtime.terminal import printable

NO_MATCHER = (
    "Missing --model FOLDER of a model that has learnt to match images and texts; this makes one: diptych finetune "
    "retrieval --data DATA --model sample --out RUN"
)
NO_TOWERS = (
    "Missing --model FOLDER of a two-tower model; this makes one: diptych finetune retrieval --from-scratch --recipe "
    "tden/small/retrieval --data STORE --out RUN"
)
if TYPE_CHECKING:
    from diptych.api.forms import Vectors


@grouped
def encode(
    *,
    image: Images,
    out: Annotated[Path, OutFile()] = Option(
        ..., help="File to write the vectors to, as numpy's .npy: (images, D) of float32, unit length."
    ),
    model: MaybeModel = None,
    server: Server = None,
    features: Features = None,
    computing: ComputingOptions,
    as_json: AsJson = False,
) -> None:
    """Write the vectors of images, computed by a two-tower model. The images are printed in the order of the rows."""
    model = _named(model, server, "encode")
    failures = Failures(image)
    paths = find_images(image, failures)
    refuse_inputs(out, paths)
    import numpy as np

    from diptych.api.model import load

    opened, rows = load(model, features=features, **vars(computing)), list[Any]()
    for path, vector in _computed(paths, opened.encode_image, failures):
        print(json.dumps({"picture": str(path), "row": len(rows)}) if as_json else printable(str(path)))
        rows.append(vector)
    if rows:
        written = io.BytesIO()
        np.save(written, np.stack(rows), allow_pickle=False)
        write_atomically(out, written.getvalue())
    failures.check(paths)


@grouped
def match(
    *,
    image: OneImage,
    texts: list[str] = Argument(metavar="TEXT", help="Texts to match with each image."),
    model: MaybeModel = None,
    server: Server = None,
    features: Features = None,
    computing: ComputingOptions,
    as_json: AsJson = False,
) -> None:
    """Print how well each text matches each image: the probability of a match, or the cosine of two-tower vectors."""
    model = _named(model, server, "match")
    "".join(texts).encode()  # raises UnicodeEncodeError for a lone surrogate, which `main` reports
    failures = Failures([image])
    paths = find_images([image], failures)
    from diptych.api.model import load

    opened = load(model, features=features, **vars(computing))
    for path, row in _computed(paths, lambda batch: opened.match(batch, texts), failures):
        for text, score in zip(texts, map(float, row), strict=True):
            line = {"picture": str(path), "text": text, "score": score}
            print(json.dumps(line, ensure_ascii=False) if as_json else printable(f"{path}: {text}: {score:.3f}"))
    failures.check(paths)


def _named(model: str | None, server: str | None, verb: str) -> str:
    """Return the name of the model.

    Raises RecipeError if the name is missing, and UnsupportedError if a service was given instead, with the verbs that
    the service answers.
    """
    if server is not None:
        from diptych.inference.client import Client

        there = ", ".join(Client(server).verbs()) or "none"
        raise UnsupportedError(f"{server} cannot {verb} (its verbs: {there}); pass --model instead of --server")
    if model is None:
        raise RecipeError(NO_TOWERS if verb == "encode" else NO_MATCHER)
    return model


def _computed(
    paths: list[Path], compute: Callable[[list[Path]], Vectors], failures: Failures
) -> Iterator[tuple[Path, Any]]:
    """Yield each image with its row of the result, computed in batches. `failures` is called for images that fail."""
    left = iter(paths)
    while batch := list(islice(left, IN_FLIGHT)):
        try:
            yield from zip(batch, compute(batch), strict=True)
        except DataError:  # encode the images of the failed batch singly, to find the ones that fail
            for path in batch:
                try:
                    yield path, compute([path])[0]
                except DataError as error:
                    failures(path, error)
