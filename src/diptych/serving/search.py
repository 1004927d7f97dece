"""Rank a folder of pictures by how well they fit a text."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from diptych.core import Record
from diptych.errors import DataError, ServingError
from diptych.loading.extract import extract
from diptych.loading.store import Store
from diptych.runs.folder import ModelFolder
from diptych.runs.regions import pixels_of
from diptych.serving.vectors import gallery_of
from diptych.tasks.gallery import Caption, Gallery, Rows, open_table
from diptych.tasks.matching import Retrieval, can_match, everything
from diptych.tasks.two_towers import Found, TwoTowers, embed_sentences
from diptych.vision.detector import Detector
from diptych.vision.given import Given
from diptych.vision.pictures import ENDINGS, find_pictures

if TYPE_CHECKING:
    from diptych.serving.predictor import Predictor

WORDS = 30  # of a query that are read, where the model has places for them
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]  # what, of how many -> told of more


@dataclass(frozen=True)
class Hit:
    """One picture that a search found."""

    picture: Path
    score: float  # the probability that the text belongs to it; of a model with two towers the product, -1 to 1


@dataclass(frozen=True)
class Searched:
    """The best first: all pictures that could be read, or those of a shortlist; and what could not, with the reason."""

    query: str
    hits: tuple[Hit, ...]
    refused: dict[Path, str]
    readable: int  # pictures that could be read


def search(
    predictor: Predictor,
    query: str,
    pictures: Path,
    cache: Path | None = None,
    batch_size: int = 64,
    progress: Progress | None = None,
    shortlist: int | None = None,
    by: Predictor | None = None,
) -> Searched:
    """Each picture below the folder is read once: its regions are kept in `cache` (default: under the
    user's cache folder) until the file changes, and so is its vector where the model makes one.

    With a `shortlist` the model `by`, which has two towers, picks so many, and only those are read and ranked.

    Raises ServingError for a model that cannot match, DataError where no picture can be read.
    """
    _check(predictor, shortlist, by)
    for one in (predictor, by):
        if one is not None:
            _check_query(one, query)
    records = _records(pictures)
    folder = cache if cache is not None else _cache(pictures, predictor.detector)
    if by is not None:
        by.folder.accept(predictor.detector.contract, folder)
    with (progress or _silent)("extracting", len(records)) as advance:
        try:
            seen = extract(records, predictor.detector, folder, progress=advance)
        except DataError as error:
            raise DataError(f"none of the {len(records)} pictures in {pictures} can be read: {error}") from error
    named = {record.key: record.image for record in records if record.image is not None}
    refused = {path: seen.failed[key] for key, path in named.items() if key in seen.failed}
    kept = _Kept(Store(folder), named, predictor.folder)
    if can_match(predictor.folder.model):
        rows: Sequence[int] = range(len(kept))
        if by is not None:
            first = _by_vectors(by, query, _Kept(kept.store, named, by.folder), folder, shortlist, progress)
            chosen = {found.key for found in first}
            rows = [row for row in rows if kept.keys[row] in chosen]
        hits = _by_pairs(predictor, query, kept, rows, batch_size, progress)
    else:
        hits = _by_vectors(predictor, query, kept, folder, None, progress)
    return Searched(query, tuple(Hit(named[hit.key], hit.score) for hit in hits), refused, len(kept))


class _Kept:
    """The records of a cache that are of this folder as it is now, as a model reads them: each when asked for."""

    def __init__(self, store: Store, named: dict[str, Path], model: ModelFolder) -> None:
        there = {store.words(index).key: index for index in range(len(store))}
        self.store, self._named = store, named
        self.keys = tuple(key for key in named if key in there)
        self._indices = [there[key] for key in self.keys]
        self._most = model.architecture.config.max_regions
        self._pixels = pixels_of(model.recipe) if model.recipe is not None else None

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, row: int, /) -> Record:
        record = self.store.record(self._indices[row]).best_regions(self._most)
        if self._pixels is None:
            return record
        return self._pixels.beside(replace(record, image=self._named[self.keys[row]]))


def _by_pairs(
    predictor: Predictor,
    query: str,
    kept: _Kept,
    rows: Sequence[int],
    batch_size: int,
    progress: Progress | None,
) -> list[Found]:
    keys = tuple(kept.keys[row] for row in rows)
    gallery = Gallery(Rows(kept, rows), keys, (Caption("query", query, 0),))
    table = open_table(gallery, None, "")
    task = Retrieval(predictor.tokens, _words(predictor))
    with (progress or _silent)("matching", len(keys)) as advance:
        task.fill(predictor.folder.model, gallery, table, everything(gallery), batch_size, advance)
    scores = 1 / (1 + np.exp(-table[:, 0].astype(np.float64)))
    return [Found(keys[row], float(scores[row])) for row in np.argsort(-scores, kind="stable")]


def _by_vectors(
    predictor: Predictor, query: str, kept: _Kept, cache: Path, most: int | None, progress: Progress | None
) -> list[Found]:
    model = predictor.folder.model
    with (progress or _silent)("encoding", len(kept)) as advance:
        gallery = gallery_of(model, predictor.fingerprint, kept, kept.keys, cache, advance)
    (found,) = gallery.search(embed_sentences(model, predictor.tokens, [query], _words(predictor)), most or len(kept))
    return found


def _words(predictor: Predictor) -> int:
    return min(WORDS, predictor.folder.architecture.config.max_text - 1)


def _has_towers(model: object) -> bool:
    return isinstance(model, TwoTowers) and "similarity" in getattr(model, "heads", ())


def can_search(model: object) -> bool:
    """Whether it has learnt to match pictures and texts."""
    return can_match(model) or _has_towers(model)


def _check(predictor: Predictor, shortlist: int | None, by: Predictor | None) -> None:
    folder = predictor.folder
    if not can_search(folder.model):
        raise ServingError(
            f"{folder.folder} has learnt no matching of pictures and texts, so it cannot search; teach it: "
            f"diptych finetune retrieval --model {folder.folder}"
        )
    if (shortlist is None) != (by is None):
        raise ServingError(
            "a shortlist is some pictures that another model picks: give both, --shortlist N and --shortlist-by MODEL"
        )
    if by is None:
        return
    if not can_match(folder.model):
        raise ServingError(
            f"{folder.folder} makes a vector of each picture, so a query costs it one pass; a shortlist is for a model "
            "that reads picture and text together: leave out --shortlist"
        )
    if not _has_towers(by.folder.model):
        raise ServingError(
            f"{by.folder.folder} ({by.folder.architecture.system}) cannot pick a shortlist: wanted a model that makes "
            "vectors of pictures and of texts apart, such as one of `diptych finetune retrieval` by tden"
        )


def _check_query(predictor: Predictor, query: str) -> None:
    if not query.strip():
        raise ServingError("the query is empty; describe a picture, such as 'a red kite over a beach'")
    if not predictor.tokens.knows(predictor.tokens.encode(query)):
        raise ServingError(
            f"{predictor.folder.folder} knows none of the words of {query!r}; describe the picture in words that it "
            "was trained on"
        )


def _records(pictures: Path) -> list[Record]:
    """Named by path, size and time: a changed file is another picture."""
    if not pictures.is_dir():
        raise DataError(f"no folder {pictures}; give one with pictures: --pictures DIR")
    found = find_pictures(pictures)
    if not found:
        raise DataError(f"an empty gallery: no pictures in {pictures}; wanted files ending in {', '.join(ENDINGS)}")
    return [Record(key=_name(path, pictures), image=path) for path in found]


def _name(path: Path, folder: Path) -> str:
    state = path.stat()
    return f"{path.relative_to(folder)} {state.st_size} {state.st_mtime_ns}"


def _cache(pictures: Path, detector: Detector) -> Path:
    """One for each folder and each way of seeing; where features are given, for each state of their files."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    state = detector.state() if isinstance(detector, Given) else ""
    of = json.dumps([str(pictures.resolve()), detector.contract.to_json(), state], sort_keys=True)
    return root / "diptych" / "galleries" / hashlib.sha256(of.encode()).hexdigest()[:20]


@contextmanager
def _silent(*_: object) -> Iterator[Callable[[int], object]]:
    yield lambda _: None
