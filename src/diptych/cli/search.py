"""The verb that finds pictures: search."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.app import AsJson, Model, app, console


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="Such as 'a red kite over a beach'.")],
    pictures: Annotated[Path, typer.Option(help="The folder to search, with all below it.")],
    model: Model,
    most: Annotated[int, typer.Option(min=1, help="How many to show.")] = 12,
    out: Annotated[Path | None, typer.Option(help="Write them as a PNG, and a page of the same name.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where to keep what was seen of the pictures.")] = None,
    shortlist: Annotated[int | None, typer.Option(min=1, help="Rank only so many, picked by another model.")] = None,
    shortlist_by: Annotated[str | None, typer.Option(metavar="MODEL", help="It makes vectors, as tden's do.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rank a folder of pictures by how well they fit a text."""
    from diptych.serving import load
    from diptych.serving.contact_sheet import write_sheet

    by = None if shortlist_by is None else load(shortlist_by)
    searched = load(model).search(query, pictures, cache, progress=_progress, shortlist=shortlist, by=by)
    for path, why in searched.refused.items():
        print(f"diptych: {path}: {why}", file=sys.stderr)
    for hit in searched.hits[:most]:
        line = json.dumps({"picture": str(hit.picture), "score": hit.score}, ensure_ascii=False)
        print(line if as_json else f"{hit.score:.3f}  {hit.picture}")
    if searched.refused:
        of = searched.looked + len(searched.refused)
        print(f"{len(searched.refused)} of {of} pictures could not be read; they are named above", file=sys.stderr)
    if out is not None:
        picture, page = write_sheet(searched, out, most)
        print(f"{picture} and {page}", file=sys.stderr)


@contextmanager
def _progress(what: str, of: int) -> Iterator[Callable[[int], object]]:
    from diptych.progress import bar

    with bar("pictures", console()) as progress:
        yield partial(progress.advance, progress.add_task(what, total=of))
