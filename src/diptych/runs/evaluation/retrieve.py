"""Retrieval over a split of a store: all pairs, or a sample of queries and a shortlist; kept in files, resumed."""

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
from diptych.data.store.pixels import Pixels
from diptych.data.store.store import Store, splits_in
from diptych.metrics.retrieval import RECALLS
from diptych.models.weights import digest
from diptych.runs.folder import ModelFolder
from diptych.runs.prepare import in_split
from diptych.runs.tasks import pixels_of
from diptych.runtime.errors import RecipeError
from diptych.runtime.progress import bar
from diptych.tasks.gallery import Cells, Records, RetrievalGallery, joined, open_table
from diptych.tasks.matching import Retrieval, rankings
from diptych.tasks.recall import recall_scores, shortlist_notes
from diptych.tasks.scores import Scores
from diptych.tasks.shortlist import MOST, Shortlister
from diptych.tasks.two_towers import choose

EXACT_BESIDE_SHORTLIST = 100  # queries each way, where none were asked for: the loss has to be known
Asks = Literal["both", "captions", "pictures"]


@dataclass(frozen=True)
class Extent:
    """How much of a gallery is scored. Without a limit: every pair."""

    queries: int | None = None  # pictures, and captions, whose ranking is exact; drawn by the seed
    shortlist: int | None = None  # of what else, so many candidates for each query
    seed: int = 0
    batch: int = 64  # pairs at a time
    by: ModelFolder | None = None  # with two towers, picks the shortlist; None: a regression does
    folds: int = 1  # galleries that the pictures are divided into, in their order, each searched by itself
    asks: Asks = "both"  # captions: by pictures alone; pictures: by captions alone

    @property
    def ways(self) -> list[str]:
        return [asks for asks in RECALLS if self.asks in ("both", asks)]


def retrieve(
    model: ModelFolder,
    store: Store,
    split: str,
    extent: Extent | None = None,
    folder: Path | None = None,
    console: Console | None = None,
) -> tuple[list[dict[str, Any]], Scores]:
    """What each query found, and the scores. `folder` keeps the scored pairs: the same call goes on with them."""
    extent = extent or Extent()
    model.accept(store.contract, store.folder)
    if extent.by is not None and not extent.shortlist:
        raise RecipeError("--shortlist-by picks the candidates of --shortlist N; give both")
    if extent.folds > 1 and (extent.queries or extent.shortlist):
        raise RecipeError("--folds ranks every pair of a fold; leave out --queries and --shortlist")
    gallery = RetrievalGallery.of(*_records(model, store, in_split(store, split, "--split")))
    task = _task(model)
    table = open_table(gallery, folder, fingerprint(model))
    sampled = extent.queries or (EXACT_BESIDE_SHORTLIST if extent.shortlist else None)
    pictures, captions = _drawn(gallery, sampled, extent)
    folds = _folds(gallery, extent.folds)
    cells = _cells(gallery, pictures, captions) if folds is None else folds[0]
    short = None
    if extent.shortlist:
        short = _asked(_shortlist(model, store, split, gallery, extent.shortlist, extent.by), extent)
        cells = joined(cells, shortlist_cells(short))
    asked = sum(map(len, cells))
    with bar("pairs", console) as progress:
        scoring = progress.add_task("scoring", total=asked)
        task.fill(model.model, gallery, table, cells, extent.batch, partial(progress.advance, scoring))
    found = rankings(gallery, table, pictures, captions, folds)
    if folds is not None:
        note = f"pictures and captions in {extent.folds} galleries, in their order, each searched by itself"
        return found, recall_scores(gallery, found, [note], extent.folds, extent.ways)
    if short is None:
        notes = [] if sampled is None else [f"exact, on a sample of {sampled} queries each way"]
        return found, recall_scores(gallery, found, notes, directions=extent.ways)
    exact = {(p["asks"], p["key"]): p["rank"] for p in found}
    through = [
        p | ({"exact_rank": exact[p["asks"], p["key"]]} if (p["asks"], p["key"]) in exact else {})
        for p in rankings(gallery, table, *_drawn(gallery, None, extent), among=short)
    ]
    pairs = sum(map(len, shortlist_cells(short)))
    notes = shortlist_notes(through, extent.shortlist or 0, pairs, int(np.prod(gallery.shape)))
    return through, recall_scores(gallery, through, notes, directions=extent.ways)


def _task(model: ModelFolder) -> Retrieval:
    words = model.recipe.data.max_words if model.recipe is not None else 20
    config = model.architecture.config
    return Retrieval(model.tokens, min(words, config.max_text - 1), config.max_regions)


class _Lazy:
    """Records of a store, with their pixels where the model reads them; read when asked for."""

    def __init__(self, store: Store, indices: Sequence[int], pixels: Pixels | None = None) -> None:
        self.store, self.indices, self.pixels = store, indices, pixels

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, row: int, /) -> Record:
        record = self.store.record(self.indices[row])
        return record if self.pixels is None else self.pixels.added_to(record)


def _records(model: ModelFolder, store: Store, indices: Sequence[int]) -> tuple[Records, list[Record]]:
    pixels = pixels_of(model.recipe) if model.recipe is not None else None
    return _Lazy(store, indices, pixels), [store.words(index) for index in indices]


def _drawn(gallery: RetrievalGallery, sampled: int | None, extent: Extent) -> tuple[list[int], list[int]]:
    """Pictures that ask for captions, and captions that ask for pictures: all of them, or a sample."""

    def of(count: int) -> list[int]:
        if sampled is None or sampled >= count:
            return list(range(count))
        return sorted(Random(f"{extent.seed}/{count}").sample(range(count), sampled))

    pictures = of(len(gallery.keys)) if "captions" in extent.ways else []
    return pictures, of(len(gallery.captions)) if "pictures" in extent.ways else []


def _asked(short: tuple[Cells, Cells], extent: Extent) -> tuple[Cells, Cells]:
    """Without the candidates of queries that nobody asks."""
    nothing = np.zeros(0, dtype=np.int64)
    of_pictures, of_captions = (
        cells if asks in extent.ways else [nothing] * len(cells)
        for asks, cells in zip(("captions", "pictures"), short, strict=True)
    )
    return of_pictures, of_captions


def _cells(gallery: RetrievalGallery, pictures: Sequence[int], captions: Sequence[int]) -> Cells:
    """All captions of the asked pictures, and the asked captions of all."""
    whole, some, asked = np.arange(len(gallery.captions)), np.array(captions, dtype=np.int64), set(pictures)
    return [whole if row in asked else some for row in range(len(gallery.keys))]


def _folds(gallery: RetrievalGallery, folds: int) -> tuple[Cells, Cells] | None:
    """For each picture the captions, and for each caption the pictures, of its fold; None where there is one alone."""
    if folds == 1:
        return None
    pictures = len(gallery.keys)
    if folds > pictures:
        raise RecipeError(f"--folds {folds}: the gallery has {pictures} pictures; give fewer folds")
    whose = np.concatenate([np.full(len(fold), at) for at, fold in enumerate(np.array_split(range(pictures), folds))])
    owners = whose[gallery.owners]
    of_captions = [np.flatnonzero(owners == fold) for fold in range(folds)]
    of_pictures = [np.flatnonzero(whose == fold) for fold in range(folds)]
    return [of_captions[fold] for fold in whose], [of_pictures[fold] for fold in owners]


def shortlist_cells(short: tuple[Cells, Cells]) -> Cells:
    """The cells that either direction's shortlist needs."""
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
    records = (gallery.records[row].best_regions(config.max_regions) for row in range(len(gallery.keys)))
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


def fingerprint(model: ModelFolder) -> str:
    """Of its shape, all its weights and its precision: what was computed with them is kept under it."""
    return digest(model.model, model.architecture.model_dump_json() + model.model.precision)
