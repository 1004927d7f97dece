"""Rank a folder of pictures by how well they fit a text."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from diptych.core import Record
from diptych.data.extract import extract
from diptych.data.store.store import FAILURES, Store
from diptych.data.store.tokens import Tokens
from diptych.runs.folder import ModelFolder
from diptych.runs.tasks import pixels_of
from diptych.runtime.errors import DataError, ServingError
from diptych.runtime.files import parse_json, text_of
from diptych.serving.galleries import open_vectors
from diptych.serving.galleries.contents import read_contents
from diptych.serving.galleries.vectors import VectorStore
from diptych.systems import SYSTEMS
from diptych.tasks.gallery import Caption, GalleryRows, RetrievalGallery, open_table
from diptych.tasks.matching import Retrieval, can_match, everything
from diptych.tasks.retrieval import can_search, has_towers
from diptych.tasks.two_towers import TowerGallery as Towers
from diptych.tasks.two_towers import TowerHit, embed_sentences
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.given import GivenRegions

WORDS = 30  # of a query that are read, where the model has places for them
ENCODED = 1024  # pictures between two writes of their vectors
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


class Searcher(Protocol):
    """An open model with its detector, as far as a search needs it."""

    @property
    def folder(self) -> ModelFolder: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def detector(self) -> Detector: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def looked(self) -> dict[object, Looked]: ...


def search(
    predictor: Searcher,
    query: str,
    pictures: Path,
    cache: Path | None = None,
    batch_size: int = 64,
    progress: Progress | None = None,
    shortlist: int | None = None,
    by: Searcher | None = None,
    gallery: str | None = None,
    most: int | None = None,
    keep: float = 0.0,
) -> Searched:
    """Each picture below the folder is read once: its regions are kept in `cache` (default: under the
    user's cache folder) by the content of the file, and so is its vector where the model makes one, there or in the
    `gallery` (the address of a database). `most` hits are enough where a model makes vectors. The folder is looked
    through for what has come, changed or gone; where a model makes vectors, only after `keep` times as long as that
    took the last time.

    With a `shortlist` the model `by`, which has two towers, picks so many, and only those are read and ranked.

    Raises ServingError for a model that cannot match, DataError where no picture can be read.
    """
    _check(predictor, shortlist, by, gallery)
    for one in (predictor, by):
        if one is not None:
            _check_query(one, query)
    folder = cache if cache is not None else _cache(pictures, predictor.detector)
    if by is not None:
        by.folder.accept(predictor.detector.contract, folder)
    ranker = by or predictor
    place = (pictures, folder, gallery)
    looked = ranker.looked.get(place)
    if looked is None or time.monotonic() >= looked.until:
        vectors = None if looked is None or gallery is None else looked.vectors
        looked = _look(predictor, ranker, pictures, folder, gallery, vectors, progress or _silent, keep)
        ranker.looked.clear()
        if keep:
            ranker.looked[place] = looked
    seen, contents, refused = looked.seen, looked.contents, looked.refused
    if looked.vectors is None:
        kept = seen.records(seen.named, predictor.folder)
        hits, readable = _by_pairs(predictor, query, kept, range(len(kept)), batch_size, progress), len(kept)
    else:
        readable = len(looked.encoded)
        hits = _by_vectors(ranker, query, looked.vectors, looked.encoded, shortlist or most or readable)
    if by is not None:
        kept = seen.records([hit.key for hit in hits], predictor.folder)
        hits = _by_pairs(predictor, query, kept, range(len(kept)), batch_size, progress)
    refused = refused | {path: seen.failed[key] for path, key in contents.items() if key in seen.failed}
    if not readable:
        why = next(iter(refused.values()), "")
        raise DataError(f"none of the {len(contents)} pictures in {pictures} can be read; the first: {why}")
    found = tuple(Hit(path, hit.score) for hit in hits for path in seen.paths[hit.key])
    return Searched(query, found, refused, sum(key not in seen.failed for key in contents.values()))


@dataclass(frozen=True)
class Looked:
    """A folder as it was found: what searches of it need beside their queries."""

    contents: dict[Path, str]
    refused: dict[Path, str]
    seen: _Seen
    vectors: VectorStore | None  # None: the model makes none
    encoded: list[str]  # those that have a vector
    until: float  # by time.monotonic


def _look(
    predictor: Searcher,
    ranker: Searcher,
    pictures: Path,
    folder: Path,
    gallery: str | None,
    vectors: VectorStore | None,
    progress: Progress,
    keep: float,
) -> Looked:
    begun = time.monotonic()
    contents, refused = read_contents(pictures, folder)
    seen, encoded = _Seen(predictor.detector, folder, contents, progress), []
    if can_match(ranker.folder.model):
        return Looked(contents, refused, seen, None, [], begun)
    vectors = vectors or open_vectors(gallery, folder, _maker(ranker))
    encoded = _encoded(ranker, seen, vectors)
    ended = time.monotonic()
    return Looked(contents, refused, seen, vectors, encoded, ended + keep * (ended - begun))


class _Seen:
    """Pictures by content, and the store in which the regions of those that were looked at are kept."""

    def __init__(self, detector: Detector, folder: Path, contents: dict[Path, str], progress: Progress) -> None:
        self.detector, self.folder, self.progress = detector, folder, progress
        self.paths: dict[str, list[Path]] = {}
        for path, content in contents.items():
            self.paths.setdefault(content, []).append(path)
        self.named = list(self.paths)
        self.failed: dict[str, str] = {}

    def records(self, wanted: Sequence[str], model: ModelFolder) -> _Kept:
        """With their regions, which are extracted where the store lacks them; what cannot be read is in `failed`."""
        records = [Record(key=content, image=self.paths[content][0]) for content in wanted]
        with self.progress("extracting", len(records)) as advance:
            try:
                self.failed |= extract(records, self.detector, self.folder, progress=advance).failed
            except DataError:
                self.failed |= _failures(self.folder)
                if not set(wanted) <= self.failed.keys():  # it was not for the pictures
                    raise
                return _Kept(None, {}, model)
        return _Kept(Store(self.folder), {record.key: record.image for record in records if record.image}, model)


class _Kept:
    """The records of a cache that are of this folder as it is now, as a model reads them: each when asked for."""

    def __init__(self, store: Store | None, named: dict[str, Path], model: ModelFolder) -> None:
        there = {} if store is None else {store.words(index).key: index for index in range(len(store))}
        self._store, self._named = store, named
        self.keys = tuple(key for key in named if key in there)
        self._indices = [there[key] for key in self.keys]
        self._most = model.architecture.config.max_regions
        self._pixels = pixels_of(model.recipe) if model.recipe is not None else None

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, row: int, /) -> Record:
        assert self._store is not None
        record = self._store.record(self._indices[row]).best_regions(self._most)
        if self._pixels is None:
            return record
        return self._pixels.added_to(replace(record, image=self._named[self.keys[row]]))


def _by_pairs(
    predictor: Searcher, query: str, kept: _Kept, rows: Sequence[int], batch_size: int, progress: Progress | None
) -> list[TowerHit]:
    keys = tuple(kept.keys[row] for row in rows)
    pairs = RetrievalGallery(GalleryRows(kept, rows), keys, (Caption("query", query, 0),))
    table = open_table(pairs, None, "")
    task = Retrieval(predictor.tokens, _words(predictor))
    with (progress or _silent)("matching", len(keys)) as advance:
        task.fill(predictor.folder.model, pairs, table, everything(pairs), batch_size, advance)
    scores = 1 / (1 + np.exp(-table[:, 0].astype(np.float64)))
    return [TowerHit(keys[row], float(scores[row])) for row in np.argsort(-scores, kind="stable")]


def _encoded(predictor: Searcher, seen: _Seen, vectors: VectorStore) -> list[str]:
    """Those of the pictures that have a vector, after each that lacked one was looked at."""
    there = vectors.known(seen.named)
    if new := [content for content in seen.named if content not in there]:
        kept = seen.records(new, predictor.folder)
        with seen.progress("encoding", len(kept)) as advance:
            for start in range(0, len(kept), ENCODED):
                rows = range(start, min(start + ENCODED, len(kept)))
                made = Towers.of_pictures(predictor.folder.model, (kept[row] for row in rows), progress=advance)
                vectors.add(made.keys, made.vectors.numpy())
        there |= set(kept.keys)
        vectors.settle()
    return [content for content in seen.named if content in there]


def _by_vectors(
    predictor: Searcher, query: str, vectors: VectorStore, contents: Sequence[str], most: int
) -> list[TowerHit]:
    if not contents:
        return []
    (asked,) = embed_sentences(predictor.folder.model, predictor.tokens, [query], _words(predictor)).float().numpy()
    return [TowerHit(content, score) for content, score in vectors.search(asked, contents, most)]


def _maker(predictor: Searcher) -> str:
    """What tells its vectors from those of others: the model, and features that were given."""
    state = predictor.detector.state() if isinstance(predictor.detector, GivenRegions) else ""
    return hashlib.sha256(f"{predictor.fingerprint} {state}".encode()).hexdigest()


def _words(predictor: Searcher) -> int:
    return min(WORDS, predictor.folder.architecture.config.max_text - 1)


def _with_towers() -> str:
    """The systems whose models make vectors of pictures and of texts apart."""
    return ", ".join(name for name, system in SYSTEMS.items() if hasattr(system.model, "embed_texts"))


def _check(predictor: Searcher, shortlist: int | None, by: Searcher | None, gallery: str | None) -> None:
    folder = predictor.folder
    if gallery is not None and can_match(folder.model) and by is None:
        raise ServingError(
            f"--gallery keeps vectors, and {folder.folder} makes none: it reads picture and text together; search with "
            f"a model that makes vectors ({_with_towers()}), or let one pick a shortlist: --shortlist N --shortlist-by "
            "MODEL"
        )
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
    if not has_towers(by.folder.model):
        raise ServingError(
            f"{by.folder.folder} ({by.folder.architecture.system}) cannot pick a shortlist: wanted a model that makes "
            f"vectors of pictures and of texts apart, one of `diptych finetune retrieval` ({_with_towers()})"
        )


def _check_query(predictor: Searcher, query: str) -> None:
    if not query.strip():
        raise ServingError("the query is empty; describe a picture, such as 'a red kite over a beach'")
    if not predictor.tokens.knows(predictor.tokens.encode(query)):
        raise ServingError(
            f"{predictor.folder.folder} knows none of the words of {query!r}; describe the picture in words that it "
            "was trained on"
        )


def _cache(pictures: Path, detector: Detector) -> Path:
    """One for each folder and each way of seeing; where features are given, for each state of their files."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    state = detector.state() if isinstance(detector, GivenRegions) else ""
    of = json.dumps([str(pictures.resolve()), detector.contract.to_json(), state], sort_keys=True)
    return root / "diptych" / "galleries" / hashlib.sha256(of.encode()).hexdigest()[:20]


def _failures(folder: Path) -> dict[str, str]:
    try:
        lines = [parse_json(line) for line in text_of(folder / FAILURES).splitlines()]
        return {str(line["key"]): str(line["reason"]) for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / FAILURES} is damaged ({error}); delete {folder}, which is made anew") from error


@contextmanager
def _silent(*_: object) -> Iterator[Callable[[int], object]]:
    yield lambda _: None
