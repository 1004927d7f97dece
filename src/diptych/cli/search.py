"""The verb `search`: rank a folder of images by a text."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from diptych.cli.app import Address, AsJson, Features, MaybeModel
from diptych.cli.groups import ComputingOptions, grouped
from diptych.cli.outputs import OutFile, OutFolder
from diptych.cli.predict import Server, option_of, refuse_with_server
from diptych.cli.vectors import NO_MATCHER
from diptych.runtime.errors import RecipeError
from diptych.runtime.terminal import begin, printable


@grouped
def search(
    *,
    query: str = Argument(help="Text to search for, such as 'a dog on a beach'."),
    images: Path | None = Option(
        None, help="Folder of images to search, with its subfolders; with --server the service's own."
    ),
    model: MaybeModel = None,
    server: Server = None,
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
    query.encode()  # raises UnicodeEncodeError for a lone surrogate, which `main` reports
    if server is not None:
        of_model = {"images": images, "out": out, "cache": cache, "shortlist": shortlist, "shortlist_by": shortlist_by}
        refuse_with_server(**of_model, gallery=gallery, features=features, **vars(computing))
        _ask(server, {"query": query, "top_k": top_k, "model": model}, as_json)
        return
    if model is None or images is None:
        raise RecipeError(NO_MATCHER if model is None else "Missing --images FOLDER: the images to search")
    if out is not None and out.suffix not in ("", ".png", ".html"):
        raise RecipeError(f"--out {out}: the images are written as PNG; pass a name such as {out.with_suffix('.png')}")
    if out is not None and out.resolve().is_relative_to(images.resolve()):
        raise RecipeError(f"--out {out} is in --images {images}, so the next search would rank it; choose a new place")
    begin(f"opening {model}")
    from diptych.api.model import load
    from diptych.runtime.progress import advancing
    from diptych.tasks.retrieval import SearchHit

    own = {"device": computing.device, "precision": computing.precision}
    by = None if shortlist_by is None else load(shortlist_by, **own).predictor
    opened = load(model, features=features, **vars(computing))
    opened.need_matching()
    opened.queries(query)
    predictor = opened.predictor
    searched = predictor.search(
        query, images, cache, progress=advancing, shortlist=shortlist, by=by, gallery=gallery, most=top_k
    )
    for path, why in searched.refused.items():
        print(f"diptych: {printable(why if str(path) in why else f'{path}: {why}')}", file=sys.stderr)
    for hit in searched.hits[:top_k]:
        line = SearchHit(picture=str(hit.picture), precision=predictor.precision, score=hit.score)
        print(line.line() if as_json else printable(f"{hit.score:.3f}  {hit.picture}"))
    if searched.refused:
        of = searched.readable + len(searched.refused)
        print(f"{len(searched.refused)} of {of} images could not be read; they are listed above", file=sys.stderr)
    if out is not None:
        from diptych.inference.contact_sheet import write_sheet

        picture, page = write_sheet(searched, out, top_k)
        print(f"{picture} and {page}", file=sys.stderr)


def _ask(server: str, given: dict[str, Any], as_json: bool) -> None:
    """Search the images of a service, and print the URLs of small copies of the best images."""
    from diptych.inference.client import Client
    from diptych.runtime.configs import derive, validated
    from diptych.tasks.retrieval import RETRIEVAL, SearchRequest

    client, named = Client(server), partial(option_of, RETRIEVAL.required_interface)
    answer = client.search(validated(SearchRequest, given, "search", named=named))
    for hit in answer.hits:
        line = derive(hit, picture=f"{client.url}/v1/pictures/{hit.picture}")
        print(line.line() if as_json else printable(f"{line.score:.3f}  {line.picture}"))
    if answer.refused:
        of = answer.searched + answer.refused
        print(f"{answer.refused} of {of} images of the service could not be read", file=sys.stderr)
