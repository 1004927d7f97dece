"""Rank a folder of images by how well they match a text."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from diptych.core import Record
from diptych.data.extract.extract import extract
from diptych.data.store.store import FAILURES, INDEX, Store
from diptych.inference.galleries import open_vectors
from diptych.inference.galleries.contents import read_contents
from diptych.inference.galleries.vectors import VectorStore
from diptych.runs.folder import ModelFolder
from diptych.runs.predict import shown_to
from diptych.runtime.errors import DataError, ServingError, explained
from diptych.runtime.files import parse_json, text_of
from diptych.runtime.outputs import claim, folder_in_cache
from diptych.systems import SYSTEMS
from diptych.tasks.gallery import GalleryCaption, RetrievalGallery, open_table
from diptych.tasks.matching import Retrieval, can_match, everything
from diptych.tasks.retrieval import can_search, has_towers
from diptych.tasks.two_towers import TowerGallery as Towers
from diptych.tasks.two_towers import TowerHit, embed_sentences
from diptych.vision.detectors.detector import Detector
from diptych.vision.detectors.given import GivenRegions

WORDS = 30  # maximum number of tokens of a query
PAIRS = 64  # number of pairs of query and image per batch
ENCODED = 1024  # number of encoded images after which their vectors are stored
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]  # (task, total) -> advance(count)


class Hit(NamedTuple):
    """An image that a search found."""

    picture: Path
    score: float  # probability of a match; for two-tower models, the dot product of the vectors, -1 to 1


@dataclass(frozen=True)
class Searched:
    """The result of a search, best hits first."""

    query: str
    hits: tuple[Hit, ...]
    refused: dict[Path, str]  # unreadable image -> reason
    readable: int  # number of readable images


class Searcher(Protocol):
    """The attributes of a `Predictor` that a search uses."""

    scans: dict[object, ScannedFolder]

    @property
    def folder(self) -> ModelFolder: ...
    @property
    def detector(self) -> Detector: ...
    @property
    def fingerprint(self) -> str: ...


def search(
    predictor: Searcher, query: str, pictures: Path, cache: Path | None = None, progress: Progress | None = None,
    shortlist: int | None = None, by: Searcher | None = None, gallery: str | None = None, most: int | None = None,
    keep: float = 0.0,
) -> Searched:  # fmt: skip
    """Rank the images below a folder by how well they match a text.

    For the arguments see `Predictor.search`. Each image is read once: its regions are cached by the content of its
    file. If the model is a two-tower model, its vectors are cached too, in the same folder or in the database at
    `gallery`. With a two-tower model, the folder is scanned again only after `keep` times the duration of the last
    scan. With other models, it is scanned at each search. Raises ServingError if the model cannot match images and
    texts, and DataError if no image can be read.
    """
    check_search(predictor, query, shortlist, by, gallery)
    folder = cache if cache is not None else _cache(pictures, predictor.detector)
    claim(folder, "cache")
    if by is not None:
        by.folder.accept(predictor.detector.contract, folder)
    ranker, show = by or predictor, progress or _silent
    scan = _scan(RegionCache(predictor.detector, folder, show), ranker, pictures, gallery, keep)
    images, contents = scan.images, scan.contents
    if scan.vectors is None:
        records = images.records(list(images.paths), predictor.folder)
        hits, readable = _by_pairs(predictor, query, records, show), len(records)
    else:
        readable = len(scan.encoded)
        hits = _by_vectors(ranker, query, scan.vectors, scan.encoded, shortlist or most or readable)
    if by is not None:
        hits = _by_pairs(predictor, query, images.records([hit.key for hit in hits], predictor.folder), show)
    refused = scan.refused | {path: images.failed[key] for path, key in contents.items() if key in images.failed}
    if not readable:
        why = next(iter(refused.values()), "")
        raise DataError(f"none of the {len(contents)} images in {pictures} can be read; the first: {why}")
    ranked = tuple(Hit(path, hit.score) for hit in hits for path in images.paths[hit.key])
    return Searched(query, ranked, refused, sum(key not in images.failed for key in contents.values()))


@dataclass(frozen=True)
class ScannedFolder:
    """The images of a folder at its last scan, which later searches reuse."""

    contents: dict[Path, str]  # path -> SHA-256 of the image file
    refused: dict[Path, str]
    images: RegionCache
    vectors: VectorStore | None  # None: the model is not a two-tower model
    encoded: list[str]  # SHA-256 of each image that has a vector
    until: float  # time.monotonic() until which no new scan is needed


def _scan(images: RegionCache, ranker: Searcher, pictures: Path, gallery: str | None, keep: float) -> ScannedFolder:
    """List the images of the folder, unless its last scan still counts.

    For a two-tower model, also compute the vectors of new images.
    """
    place, begun = (pictures, images.folder, gallery), time.monotonic()
    last = ranker.scans.get(place)
    if last is not None and begun < last.until:
        return last
    ranker.scans.clear()
    contents, refused = read_contents(pictures, images.folder)
    for path, content in contents.items():
        images.paths.setdefault(content, []).append(path)
    if can_match(ranker.folder.model):
        return ScannedFolder(contents, refused, images, None, [], begun)
    known = None if last is None or gallery is None else last.vectors
    vectors = known or open_vectors(gallery, images.folder, _maker(ranker))
    encoded, ended = _encoded(ranker, images, vectors), time.monotonic()
    made = ScannedFolder(contents, refused, images, vectors, encoded, ended + keep * (ended - begun))
    ranker.scans |= {place: made} if keep else {}
    return made


class RegionCache:
    """Caches the regions of images in a store. The key of an image is its content (SHA-256)."""

    def __init__(self, detector: Detector, folder: Path, progress: Progress) -> None:
        self.detector, self.folder, self.progress = detector, folder, progress
        self.paths: dict[str, list[Path]] = {}
        self.failed: dict[str, str] = {}

    def records(self, contents: Sequence[str], model: ModelFolder) -> CachedRecords:
        """Return records with regions.

        The regions of images that are not in the store yet are extracted. Unreadable images are added to `failed`.
        """
        paths = {content: self.paths[content][0] for content in contents}
        # Keep the paths that the store has, so that a renamed image does not look like a new one.
        there = images_in(self.folder) if (self.folder / INDEX).exists() else {}
        records = [Record(key=content, image=there.get(content) or path) for content, path in paths.items()]
        with self.progress("extracting", len(records)) as advance:
            try:
                self.failed |= extract(records, self.detector, self.folder, progress=advance).failed
            except DataError:
                self.failed |= _failures(self.folder)
                if not set(contents) <= self.failed.keys():  # some images are readable, so the error has another cause
                    raise
                return CachedRecords(None, {}, model)
        return CachedRecords(shown_to(model.recipe, Store(self.folder)), paths, model)


def images_in(folder: Path) -> dict[str, Path | None]:
    """Return {key: path of the image} for the records of a store."""
    store = Store(folder)
    return {words.key: words.image for words in map(store.words, range(len(store)))}


class CachedRecords:
    """The cached records of a folder's images.

    A record is read on access, with at most the model's number of regions.
    """

    def __init__(self, store: Store | None, paths: dict[str, Path], model: ModelFolder) -> None:
        there = {} if store is None else {store.words(index).key: index for index in range(len(store))}
        self._store, self._paths = store, paths
        self.keys = tuple(key for key in paths if key in there)
        self._indices = [there[key] for key in self.keys]
        self._most = model.architecture.config.max_regions
        self._pixels = model.recipe.pixels if model.recipe is not None else None

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, row: int, /) -> Record:
        assert self._store is not None
        record = self._store.record(self._indices[row]).best_regions(self._most)
        if self._pixels is None:
            return record
        return self._pixels.added_to(replace(record, image=self._paths[self.keys[row]]))


def _by_pairs(predictor: Searcher, query: str, records: CachedRecords, progress: Progress) -> list[TowerHit]:
    """Rank records by the probability that query and image match. Each pair is encoded jointly."""
    with progress("matching", len(records)) as advance:
        scores = pair_scores(predictor, records, [query], advance)[:, 0]
    return [TowerHit(records.keys[row], float(scores[row])) for row in np.argsort(-scores, kind="stable")]


def pair_scores(
    predictor: Searcher,
    records: CachedRecords | Sequence[Record],
    texts: Sequence[str],
    progress: Callable[[int], object] | None = None,
) -> NDArray[np.float32]:
    """Return the probability that image and text match, (images, texts). Each pair is encoded jointly.

    Raises ServingError for a model that was not trained to match images and texts.
    """
    _check(predictor, None, None, None)
    keys, captions = tuple(map(str, range(len(records)))), [GalleryCaption(str(n), t, 0) for n, t in enumerate(texts)]
    pairs = RetrievalGallery(lru_cache(1)(records.__getitem__), keys, tuple(captions))
    table = open_table(pairs, None, "")
    task = Retrieval(predictor.folder.tokens, query_words(predictor))
    task.fill(predictor.folder.model, pairs, table, everything(pairs), PAIRS, progress)
    return (1 / (1 + np.exp(-table.astype(np.float64)))).astype(np.float32)


def _encoded(predictor: Searcher, images: RegionCache, vectors: VectorStore) -> list[str]:
    """Encode the images that have no vector yet. Return all contents that have a vector afterwards."""
    there = vectors.known(list(images.paths))
    if new := [content for content in images.paths if content not in there]:
        records = images.records(new, predictor.folder)
        with images.progress("encoding", len(records)) as advance:
            for start in range(0, len(records), ENCODED):
                rows = range(start, min(start + ENCODED, len(records)))
                made = Towers.of_pictures(predictor.folder.model, (records[row] for row in rows), progress=advance)
                vectors.add(made.keys, made.vectors.numpy())
        there |= set(records.keys)
        vectors.settle()
    return [content for content in images.paths if content in there]


def _by_vectors(
    predictor: Searcher, query: str, vectors: VectorStore, contents: Sequence[str], most: int
) -> list[TowerHit]:
    """Return the `most` images whose vectors have the largest dot product with the query's vector."""
    if not contents:
        return []
    model, tokens = predictor.folder.model, predictor.folder.tokens
    (vector,) = embed_sentences(model, tokens, [query], query_words(predictor)).float().numpy()
    return [TowerHit(content, score) for content, score in vectors.search(vector, contents, most)]


def _maker(predictor: Searcher) -> str:
    """Return a hash that identifies the origin of vectors: the model, and the precomputed features if it uses any."""
    state = predictor.detector.state() if isinstance(predictor.detector, GivenRegions) else ""
    return hashlib.sha256(f"{predictor.fingerprint} {state}".encode()).hexdigest()


def query_words(predictor: Searcher) -> int:
    """Return the maximum number of tokens of a query; longer queries are cut."""
    return min(WORDS, predictor.folder.architecture.config.max_text - 1)


def _check(predictor: Searcher, shortlist: int | None, by: Searcher | None, gallery: str | None) -> None:
    """Raise ServingError if the model cannot search, or does not support one of the options."""
    folder = predictor.folder
    two_towers = ", ".join(name for name, system in SYSTEMS.items() if hasattr(system.model, "embed_texts"))
    problem = None
    if gallery is not None and can_match(folder.model) and by is None:
        problem = (
            f"--gallery stores vectors, but {folder.name} has none: it reads image and text together. Search with "
            f"a two-tower model ({two_towers}), or let that model pick a shortlist: --shortlist N --shortlist-by MODEL"
        )
    elif not can_search(folder.model):
        problem = (
            f"{folder.name} was not trained to match images and texts, so it cannot search; train it: "
            f"diptych finetune retrieval --data DATA --model {folder.name} --out RUN"
        )
    elif (shortlist is None) != (by is None):
        problem = "a shortlist needs a size and a model: pass both --shortlist N and --shortlist-by MODEL"
    elif by is not None and not can_match(folder.model):
        problem = (
            f"{folder.name} makes a vector of each image, so a query needs only one pass; a shortlist is for a model "
            "that reads image and text together: leave out --shortlist (Python: rerank)"
        )
    elif by is not None and not has_towers(by.folder.model):
        problem = (
            f"{by.folder.folder} ({by.folder.architecture.system}) cannot pick a shortlist: expected a two-tower model "
            f"from `diptych finetune retrieval` ({two_towers})"
        )
    if problem is not None:
        raise ServingError(problem)


def check_search(
    predictor: Searcher, query: str, shortlist: int | None, by: Searcher | None, gallery: str | None = None
) -> None:
    """Raise ServingError like `_check`. Also raise it if the query is empty or has no word of the vocabulary."""
    _check(predictor, shortlist, by, gallery)
    if not query.strip():
        raise ServingError("the query is empty; describe an image, such as 'a dog on a beach'")
    for folder in [predictor.folder] + ([] if by is None else [by.folder]):
        if not folder.tokens.knows(folder.tokens.encode(query)):
            raise ServingError(f"{folder.folder} has no word of {query!r} in its vocabulary; use other words")


def _cache(pictures: Path, detector: Detector) -> Path:
    """Create the default cache folder for a folder of images and a detector.

    Its name depends on the detector's precomputed features, if there are any.
    """
    state = detector.state() if isinstance(detector, GivenRegions) else ""
    of = json.dumps([str(pictures.resolve()), detector.contract.to_json(), state], sort_keys=True)
    return folder_in_cache(f"galleries/{hashlib.sha256(of.encode()).hexdigest()[:20]}", "pass --cache FOLDER, or ")


def _failures(folder: Path) -> dict[str, str]:
    with explained(DataError, f"{folder / FAILURES} is damaged", f"delete {folder} and search again"):
        lines = [parse_json(line) for line in text_of(folder / FAILURES).split("\n") if line]
        return {str(line["key"]): str(line["reason"]) for line in lines}


@contextmanager
def _silent(*_: object) -> Iterator[Callable[[int], object]]:
    yield lambda _: None
