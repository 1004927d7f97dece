"""Rank a folder of pictures by how well they fit a text."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diptych.core import FeatureContract, Record
from diptych.errors import DataError, ServingError
from diptych.loading.extract import extract
from diptych.loading.store import Store
from diptych.loading.tokens import Tokens
from diptych.tasks import two_towers
from diptych.tasks.gallery import Caption, Gallery, open_table
from diptych.tasks.retrieval import Retrieval, can_match
from diptych.vision.pictures import ENDINGS, find_pictures

if TYPE_CHECKING:
    from diptych.serving.predictor import Predictor

WORDS = 30  # of a query that are read, where the model has places for them
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]  # what, of how many -> told of more


@dataclass(frozen=True)
class Hit:
    picture: Path
    score: float  # the probability that the text belongs to it; of a model with two towers the product, -1 to 1


@dataclass(frozen=True)
class Searched:
    """All pictures that could be read, the best first, and those that could not with the reason."""

    query: str
    hits: tuple[Hit, ...]
    refused: dict[Path, str]


def search(
    predictor: Predictor,
    query: str,
    pictures: Path,
    cache: Path | None = None,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> Searched:
    """Each picture below the folder is looked at once: what was seen of it is kept in `cache` (default: under the
    user's cache folder) until the file changes.

    Raises ServingError for a model that cannot match, DataError where no picture can be read.
    """
    model = predictor.folder.model
    if not (can_match(model) or (isinstance(model, two_towers.TwoTowers) and "similarity" in model.heads)):
        raise ServingError(
            f"{predictor.folder.folder} has learnt no matching of pictures and texts, so it cannot search; teach it: "
            f"diptych finetune retrieval --model {predictor.folder.folder}"
        )
    if not query.strip():
        raise ServingError("the query is empty; describe a picture, such as 'a red kite over a beach'")
    records = _records(pictures)
    folder = cache if cache is not None else _cache(pictures, predictor.eyes.contract)
    with (progress or _silent)("looking", len(records)) as told:
        try:
            seen = extract(records, predictor.eyes, folder, progress=told)
        except DataError as error:
            raise DataError(f"none of the {len(records)} pictures in {pictures} can be read: {error}") from error
    named = {record.key: record.picture for record in records if record.picture is not None}
    refused = {path: seen.failed[key] for key, path in named.items() if key in seen.failed}
    kept = _Kept(Store(folder), named, predictor.folder.architecture.config.max_regions)
    with (progress or _silent)("matching", len(kept)) as told:
        scores = _scores(model, predictor.tokens, query, kept, batch_size, told)
    order = np.argsort(-scores, kind="stable")
    return Searched(query, tuple(Hit(kept.paths[row], float(scores[row])) for row in order), refused)


class _Kept:
    """The records of a cache that are of this folder as it is now; each is read when asked for."""

    def __init__(self, store: Store, named: dict[str, Path], max_regions: int) -> None:
        there = {store.words(index).key: index for index in range(len(store))}
        self.store, self.max_regions = store, max_regions
        self.keys = tuple(key for key in named if key in there)
        self.paths = [named[key] for key in self.keys]
        self._indices = [there[key] for key in self.keys]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, row: int, /) -> Record:
        return self.store.record(self._indices[row])


def _scores(
    model: Any, tokens: Tokens, query: str, kept: _Kept, batch_size: int, told: Callable[[int], object]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    words = min(WORDS, model.config.max_text - 1)
    if not can_match(model):
        seen = [kept[row] for row in range(len(kept))]
        vectors = two_towers.Gallery.of_pictures(model, seen).vectors
        asked = two_towers.embed_sentences(model, tokens, [query], words)
        told(len(kept))
        return (vectors @ asked[0]).double().numpy()
    gallery = Gallery(kept, kept.keys, (Caption("query", query, 0),))
    table = open_table(gallery, None, "")
    task = Retrieval(tokens, words, kept.max_regions)
    task.fill(model, gallery, table, [np.zeros(1, dtype=np.int64)] * len(kept), batch_size, told)
    return 1 / (1 + np.exp(-table[:, 0].astype(np.float64)))


def _records(pictures: Path) -> list[Record]:
    """Named by path, size and time: a changed file is another picture."""
    if not pictures.is_dir():
        raise DataError(f"no folder {pictures}; give one with pictures: --pictures DIR")
    found = find_pictures(pictures)
    if not found:
        raise DataError(f"an empty gallery: no pictures in {pictures}; wanted files ending in {', '.join(ENDINGS)}")
    return [Record(key=_name(path, pictures), picture=path) for path in found]


def _name(path: Path, folder: Path) -> str:
    state = path.stat()
    return f"{path.relative_to(folder)} {state.st_size} {state.st_mtime_ns}"


def _cache(pictures: Path, contract: FeatureContract) -> Path:
    """One for each folder and each way of seeing."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    of = json.dumps([str(pictures.resolve()), contract.to_json()], sort_keys=True)
    return root / "diptych" / "galleries" / hashlib.sha256(of.encode()).hexdigest()[:20]


@contextmanager
def _silent(*_: object) -> Iterator[Callable[[int], object]]:
    yield lambda _: None
