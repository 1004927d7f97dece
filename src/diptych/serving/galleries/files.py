"""Vectors in one safetensors file for each model, searched by products; where there are many, by an index beside it.

The index (faiss, of the extra `search`) is made once, when many vectors were added, and kept: a product with all
100,000 takes less time than making one, and looking through clusters a tenth of it (docs/results/gallery.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from diptych.runtime.files import bytes_of, write_atomically
from diptych.serving.galleries.vectors import Vectors

FOLDER = "vectors"
CONTENTS, VECTORS, CHECK = "contents", "vectors", "check"  # (N, 32) bytes of SHA-256; (N, S); CRC-32 of both
CHECKED = 4  # bytes of a CRC-32, before an index
MANY = 30_000  # from here on an index is made
RECALL, NEAREST, TRIED = 0.995, 10, 200  # of the 10 nearest of some of its own vectors: more clusters, until it holds


class FileVectors:
    """A file that is damaged, or cut short, is made anew: what it held can be computed again."""

    def __init__(self, folder: Path, model: str) -> None:
        self.path = folder / FOLDER / f"{model[:20]}.safetensors"
        self._contents, self._vectors = _read(self.path)
        self._rows = {content: row for row, content in enumerate(self._contents)}
        self._index = _read_index(self._index_path, len(self._contents))
        self._among: _Among | None = None

    @property
    def _index_path(self) -> Path:
        return self.path.with_suffix(".faiss")

    def known(self, contents: Sequence[str]) -> set[str]:
        return self._rows.keys() & set(contents)

    def add(self, contents: Sequence[str], vectors: Vectors) -> None:
        new = [row for row, content in enumerate(contents) if content not in self._rows]
        more = np.asarray(vectors, np.float32)[new]
        self._vectors = np.concatenate([self._vectors, more]) if len(self._contents) else more
        self._contents += [contents[row] for row in new]
        self._rows = {content: row for row, content in enumerate(self._contents)}
        self._among = self._index = None
        self._index_path.unlink(missing_ok=True)
        hashes = np.frombuffer(bytes.fromhex("".join(self._contents)), np.uint8).reshape(-1, 32)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._vectors = np.ascontiguousarray(self._vectors)
        check = _check(hashes, self._vectors)
        write_atomically(self.path, save({CONTENTS: hashes, VECTORS: self._vectors, CHECK: check}))

    def settle(self) -> None:
        if self._index is None and len(self._contents) >= MANY and (made := _make_index(self._vectors)) is not None:
            import faiss

            content = faiss.serialize_index(made)
            write_atomically(self._index_path, _check(content).tobytes(), content.data)
            self._index = made

    def search(self, query: NDArray[np.float32], contents: Sequence[str], most: int) -> list[tuple[str, float]]:
        if self._among is None or self._among.contents is not contents:
            rows = [self._rows[content] for content in contents]
            self._among = _Among(contents, frozenset(rows), torch.from_numpy(self._vectors[rows]))
        if self._index is not None and len(contents) >= MANY:
            scores, places = self._index.search(query[None], 2 * most)
            hits = zip(places[0].tolist(), scores[0].tolist(), strict=True)
            found = [(self._contents[row], score) for row, score in hits if row in self._among.rows][:most]
            if len(found) == most:
                return found
        products, places = (self._among.vectors @ torch.from_numpy(query)).topk(min(most, len(contents)))
        return [(contents[place], score) for place, score in zip(places.tolist(), products.tolist(), strict=True)]


@dataclass(frozen=True)
class _Among:
    """What was searched last."""

    contents: Sequence[str]
    rows: frozenset[int]
    vectors: Tensor


def _make_index(vectors: Vectors) -> Any | None:
    """Clusters, of which a query looks through as many as the recall takes; None where faiss is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    count, width = vectors.shape
    clusters = int(4 * count**0.5)
    index: Any = faiss.index_factory(width, f"IVF{clusters},Flat", faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = 39  # the fewest that faiss takes without a warning
    index.train(vectors)
    index.add(vectors)
    tried = vectors[:: max(1, count // TRIED)]
    wanted = (torch.from_numpy(tried) @ torch.from_numpy(vectors).T).topk(NEAREST).indices.numpy()
    index.nprobe = 8
    while index.nprobe < clusters:
        _, found = index.search(tried, NEAREST)
        if sum(len(np.intersect1d(*rows)) for rows in zip(wanted, found, strict=True)) >= RECALL * wanted.size:
            break
        index.nprobe *= 2
    return index


def _read_index(path: Path, count: int) -> Any | None:
    """None where there is none, where it is of other vectors, and where it cannot be read: it can be made again."""
    if count < MANY or not path.exists():
        return None
    try:
        import faiss

        content = np.frombuffer(bytes_of(path), np.uint8)
        if content[:CHECKED].tobytes() != _check(content[CHECKED:]).tobytes():  # faiss may crash over what is damaged
            return None
        index = faiss.deserialize_index(content[CHECKED:])
    except (ImportError, OSError, RuntimeError, MemoryError):
        return None
    return index if index.ntotal == count else None


def _read(path: Path) -> tuple[list[str], Vectors]:
    try:
        kept = load(bytes_of(path))
        hashes, vectors, check = kept[CONTENTS], kept[VECTORS], kept[CHECK]
    except (OSError, SafetensorError, KeyError):
        return [], np.zeros((0, 0), np.float32)
    if hashes.shape != (len(vectors), 32) or vectors.ndim != 2 or check.tolist() != _check(hashes, vectors).tolist():
        return [], np.zeros((0, 0), np.float32)
    return [row.tobytes().hex() for row in hashes], vectors


def _check(*arrays: NDArray[Any]) -> NDArray[np.uint32]:
    """CRC-32 of their bytes, one after the other."""
    found = 0
    for array in arrays:
        found = zlib.crc32(array.data, found)
    return np.array([found], np.uint32)
