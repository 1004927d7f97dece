"""Retrieval over a split: score all pairs, or only a sample of queries or a shortlist. A stopped run can resume."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
from rich.console import Console

from diptych.core import Record
from diptych.data.store.store import Store, splits_in
from diptych.metrics.retrieval import RECALLS
from diptych.models.weights import digest
from diptych.runs.folder import ModelFolder
from diptych.runs.predict import in_split, shown_to
from diptych.runtime.errors import RecipeError
from diptych.runtime.progress import bar
from diptych.tasks.gallery import Cells, Equals, RetrievalGallery, joined, open_table
from diptych.tasks.matching import Retrieval, rankings
from diptych.tasks.recall import recall_scores, shortlist_notes
from diptych.tasks.scores import Scores
from diptych.tasks.shortlist import MOST, Shortlister
from diptych.tasks.two_towers import choose

# With a shortlist, this many queries per direction are also ranked exactly, to measure what the shortlist loses.
EXACT_BESIDE_SHORTLIST = 100
Asks = Literal["both", "captions", "pictures"]


@dataclass(frozen=True)
class Extent:
    """The selection of a gallery's pairs that are scored. By default, all pairs are scored."""

    queries: int | None = None  # random sample of this many image queries and caption queries; None: all
    shortlist: int | None = None  # a shortlist keeps this many candidates per query; None: no shortlist
    seed: int = 0
    batch: int = 64  # number of pairs per batch
    by: ModelFolder | None = None  # two-tower model that makes the shortlist; None: a ridge regression makes it
    folds: int = 1  # the images are split in order into this many galleries, each searched separately
    # captions: images are the queries, and captions are ranked. pictures: the reverse. both: both directions.
    asks: Asks = "both"

    def __post_init__(self) -> None:
        """Raise RecipeError if fields contradict each other."""
        if self.by is not None and not self.shortlist:
            raise RecipeError("--shortlist-by picks the candidates of --shortlist N; pass both")
        if self.folds > 1 and (self.queries or self.shortlist):
            raise RecipeError("--folds ranks every pair of a fold; leave out --queries and --shortlist")

    @property
    def directions(self) -> list[str]:
        """The directions that are scored: "captions" (image queries), "pictures" (caption queries), or both."""
        return [asks for asks in RECALLS if self.asks in ("both", asks)]


def retrieve(
    model: ModelFolder,
    store: Store,
    split: str,
    extent: Extent | None = None,
    folder: Path | None = None,
    console: Console | None = None,
) -> tuple[list[dict[str, Any]], Scores]:
    """Rank the gallery for each query.

    Return rankings and scores. Scored pairs are saved in `folder`, so that a repeated call resumes.

    Raises RecipeError and DataError.
    """
    extent = extent or Extent()
    model.accept(store.contract, store.folder)
    store = shown_to(model.recipe, store)
    gallery = _gallery(model, store, in_split(store, split, "--split"))
    task = _task(model)
    table = open_table(gallery, folder, model_fingerprint(model), store.content)
    sampled = extent.queries or (EXACT_BESIDE_SHORTLIST if extent.shortlist else None)
    pictures, captions = _drawn(gallery, sampled, extent)
    folds = _folds(gallery, extent.folds)
    cells = _cells(gallery, pictures, captions) if folds is None else folds[0]
    short = None
    if extent.shortlist:
        short = _restricted(_shortlist(model, store, split, gallery, extent.shortlist, extent.by), extent)
        cells = joined(cells, shortlist_cells(short))
    total = sum(map(len, cells))
    with bar("pairs", console) as progress:
        scoring = progress.add_task("scoring", total=total)
        task.fill(model.model, gallery, table, cells, extent.batch, partial(progress.advance, scoring))
    ranked = rankings(gallery, table, pictures, captions, folds)
    if folds is not None:
        note = f"images and captions split in order into {extent.folds} galleries, each searched separately"
        return ranked, recall_scores(gallery, ranked, [note], extent.folds, extent.directions)
    if short is None:
        notes = [] if sampled is None else [f"exact, on a sample of {sampled} queries per direction"]
        return ranked, recall_scores(gallery, ranked, notes, directions=extent.directions)
    exact = {(p["asks"], p["key"]): p["rank"] for p in ranked}
    through = [
        p | ({"exact_rank": exact[p["asks"], p["key"]]} if (p["asks"], p["key"]) in exact else {})
        for p in rankings(gallery, table, *_drawn(gallery, None, extent), among=short)
    ]
    pairs = sum(map(len, shortlist_cells(short)))
    notes = shortlist_notes(through, extent.shortlist or 0, pairs, int(np.prod(gallery.shape)))
    return through, recall_scores(gallery, through, notes, directions=extent.directions)


def _task(model: ModelFolder) -> Retrieval:
    words = model.recipe.data.max_words if model.recipe is not None else 20
    config = model.architecture.config
    return Retrieval(model.tokens, min(words, config.max_text - 1), config.max_regions)


def _gallery(model: ModelFolder, store: Store, indices: Sequence[int]) -> RetrievalGallery:
    """Build the gallery of the records `indices`. Records get pixels if the model reads pixels."""
    pixels = model.recipe.pixels if model.recipe is not None else None

    def read(row: int) -> Record:
        record = store.record(indices[row])
        return record if pixels is None else pixels.added_to(record)

    equals: Equals = "content" if model.recipe is None else model.recipe.objectives.texts_equal_by
    return RetrievalGallery.of([store.words(index) for index in indices], read, equals)


def _drawn(gallery: RetrievalGallery, sampled: int | None, extent: Extent) -> tuple[list[int], list[int]]:
    """Return the indices of the image queries and of the caption queries: all, or a random sample of `sampled`."""

    def of(count: int) -> list[int]:
        if sampled is None or sampled >= count:
            return list(range(count))
        return sorted(Random(f"{extent.seed}/{count}").sample(range(count), sampled))

    pictures = of(len(gallery.keys)) if "captions" in extent.directions else []
    return pictures, of(len(gallery.captions)) if "pictures" in extent.directions else []


def _restricted(short: tuple[Cells, Cells], extent: Extent) -> tuple[Cells, Cells]:
    """Remove the candidates of all image queries, or of all text queries, if `extent.asks` excludes these."""
    nothing = np.zeros(0, dtype=np.int64)
    of_pictures, of_captions = (
        cells if asks in extent.directions else [nothing] * len(cells)
        for asks, cells in zip(("captions", "pictures"), short, strict=True)
    )
    return of_pictures, of_captions


def _cells(gallery: RetrievalGallery, pictures: Sequence[int], captions: Sequence[int]) -> Cells:
    """Return the cells to score: each queried image with all captions, and each queried caption with all images."""
    whole, some, rows = np.arange(len(gallery.captions)), np.array(captions, dtype=np.int64), set(pictures)
    return [whole if row in rows else some for row in range(len(gallery.keys))]


def _folds(gallery: RetrievalGallery, folds: int) -> tuple[Cells, Cells] | None:
    """Return for each image the captions of its fold, and for each caption the images of its fold.

    Return None if `folds` is 1, because the gallery is then not divided.
    """
    if folds == 1:
        return None
    pictures = len(gallery.keys)
    if folds > pictures:
        raise RecipeError(f"--folds {folds}: the gallery has {pictures} images; pass fewer folds")
    fold_of = np.concatenate([np.full(len(fold), at) for at, fold in enumerate(np.array_split(range(pictures), folds))])
    owners = fold_of[gallery.owners]
    of_captions = [np.flatnonzero(owners == fold) for fold in range(folds)]
    of_pictures = [np.flatnonzero(fold_of == fold) for fold in range(folds)]
    return [of_captions[fold] for fold in fold_of], [of_pictures[fold] for fold in owners]


def shortlist_cells(short: tuple[Cells, Cells]) -> Cells:
    """Return the cells to score for the shortlists of both directions."""
    of_pictures, of_captions = short
    columns: list[list[int]] = [list(map(int, row)) for row in of_pictures]
    for column, rows in enumerate(of_captions):
        for row in rows:
            columns[int(row)].append(column)
    return [np.unique(np.array(row, dtype=np.int64)) for row in columns]


def _shortlist(
    model: ModelFolder, store: Store, split: str, gallery: RetrievalGallery, most: int, by: ModelFolder | None
) -> tuple[Cells, Cells]:
    if by is None:
        return _shortlister(model, store, split).choose(gallery, most)
    by.accept(store.contract, store.folder)
    config = by.architecture.config
    records = (gallery.record(row).best_regions(config.max_regions) for row in range(len(gallery.keys)))
    texts = [caption.text for caption in gallery.captions]
    words = by.recipe.data.max_words if by.recipe is not None else 20
    return choose(by.model, by.tokens, records, texts, most, min(words, config.max_text - 1))


def _shortlister(model: ModelFolder, store: Store, split: str) -> Shortlister:
    trained_on = model.recipe.data.split if model.recipe is not None else "train"
    scored = splits_in(split)

    def training() -> Iterator[Record]:
        for index in in_split(store, trained_on, "--set data.split=NAME"):
            record = store.words(index)
            if record.split not in scored and record.captions:
                yield store.record(index)

    return Shortlister.of(islice(training(), MOST), model.tokens)


def model_fingerprint(model: ModelFolder) -> str:
    """Return a digest of a model's architecture, weights, precision and settings of its data.

    It identifies the model in stored scores.
    """
    data = "" if model.recipe is None else model.recipe.data.model_dump_json()
    return digest(model.model, model.architecture.model_dump_json(exclude={"examples"}) + model.model.precision + data)
