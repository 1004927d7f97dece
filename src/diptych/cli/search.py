"""The verb that finds pictures: search."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.app import Address, AsJson, Device, Features, Model, Precise, app, console
from diptych.runtime.files import refuse_unwritable
from diptych.runtime.terminal import printable


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="Text to search for, such as 'a red kite over a beach'.")],
    pictures: Annotated[Path, typer.Option(help="Folder of pictures to search, with its subfolders.")],
    model: Model,
    most: Annotated[int, typer.Option(min=1, help="Pictures to show, the best first.")] = 12,
    out: Annotated[
        Path | None, typer.Option(help="PNG file to write the pictures to, beside an HTML page of the same name.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder that keeps the regions of the pictures for the next search; default: in the user's cache."
        ),
    ] = None,
    shortlist: Annotated[
        int | None, typer.Option(min=1, help="Pictures that --model ranks, picked by --shortlist-by; default: all.")
    ] = None,
    shortlist_by: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model with vectors (such as tden) that picks the shortlist.")
    ] = None,
    gallery: Address = None,
    features: Features = None,
    device: Device = "auto",
    precision: Precise = "auto",
    as_json: AsJson = False,
) -> None:
    """Rank a folder of pictures by how well they fit a text."""
    from diptych.serving import load
    from diptych.serving.contact_sheet import write_sheet
    from diptych.serving.messages import Hit

    refuse_unwritable(out)
    by = None if shortlist_by is None else load(shortlist_by, device=device, precision=precision)
    predictor = load(model, features, device=device, precision=precision)
    searched = predictor.search(
        query, pictures, cache, progress=_progress, shortlist=shortlist, by=by, gallery=gallery, most=most
    )
    for path, why in searched.refused.items():
        print(f"diptych: {printable(f'{path}: {why}')}", file=sys.stderr)
    for hit in searched.hits[:most]:
        line = Hit(picture=str(hit.picture), precision=predictor.precision, score=hit.score)
        print(line.line() if as_json else printable(f"{hit.score:.3f}  {hit.picture}"))
    if searched.refused:
        of = searched.readable + len(searched.refused)
        print(f"{len(searched.refused)} of {of} pictures could not be read; they are named above", file=sys.stderr)
    if out is not None:
        picture, page = write_sheet(searched, out, most)
        print(f"{picture} and {page}", file=sys.stderr)


@contextmanager
def _progress(what: str, of: int) -> Iterator[Callable[[int], object]]:
    from diptych.runtime.progress import bar

    with bar("pictures", console()) as progress:
        yield partial(progress.advance, progress.add_task(what, total=of))
