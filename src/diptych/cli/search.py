"""The verb `search`: rank a folder of images by a text."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from diptych.cli.app import USE, Address, AsJson, Features, Model, app, console
from diptych.cli.groups import ComputingOptions, grouped
from diptych.cli.outputs import OutFile, OutFolder
from diptych.runtime.terminal import printable


@app.command(rich_help_panel=USE)
@grouped
def search(
    *,
    query: str = Argument(help="Text to search for, such as 'a red kite over a beach'."),
    images: Path = Option(..., help="Folder of images to search, with its subfolders."),
    model: Model,
    top_k: int = Option(12, min=1, help="Images to show, the best first."),
    out: Annotated[Path | None, OutFile((".png", ".html"))] = Option(
        None, help="PNG file to write the images to, next to an HTML page of the same name."
    ),
    cache: Annotated[Path | None, OutFolder("cache")] = Option(
        None, help="Folder that keeps the images' regions; default: in the user's cache."
    ),
    shortlist: int | None = Option(None, min=1, help="Images that --shortlist-by picks for --model; default: all."),
    shortlist_by: str | None = Option(None, metavar="MODEL", help="Two-tower model (tden) that picks the shortlist."),
    gallery: Address = None,
    features: Features = None,
    computing: ComputingOptions,
    as_json: AsJson = False,
) -> None:
    """Rank a folder of images by how well they match a text."""
    from diptych.api.model import load
    from diptych.serving.contact_sheet import write_sheet
    from diptych.tasks.retrieval import SearchHit

    query.encode()  # raises UnicodeEncodeError, which main names
    own = {"device": computing.device, "precision": computing.precision}
    by = None if shortlist_by is None else load(shortlist_by, **own).predictor
    predictor = load(model, features=features, **vars(computing)).predictor
    searched = predictor.search(
        query, images, cache, progress=_progress, shortlist=shortlist, by=by, gallery=gallery, most=top_k
    )
    for path, why in searched.refused.items():
        print(f"diptych: {printable(f'{path}: {why}')}", file=sys.stderr)
    for hit in searched.hits[:top_k]:
        line = SearchHit(picture=str(hit.picture), precision=predictor.precision, score=hit.score)
        print(line.line() if as_json else printable(f"{hit.score:.3f}  {hit.picture}"))
    if searched.refused:
        of = searched.readable + len(searched.refused)
        print(f"{len(searched.refused)} of {of} images could not be read; they are listed above", file=sys.stderr)
    if out is not None:
        picture, page = write_sheet(searched, out, top_k)
        print(f"{picture} and {page}", file=sys.stderr)


@contextmanager
def _progress(what: str, of: int) -> Iterator[Callable[[int], object]]:
    from diptych.runtime.progress import bar

    with bar("pictures", console()) as progress:
        yield partial(progress.advance, progress.add_task(what, total=of))
