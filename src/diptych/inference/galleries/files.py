"""Store the vectors of a model in a safetensors file.

A search computes the query's product with all vectors, or uses a faiss index (extra `search`) for large galleries. The
index is saved. It is built again only after many vectors were added. With 100,000 vectors, building the index takes
longer than one search without it. A search with the index takes a tenth of the time of a search without it
(docs/results/gallery.md).
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

from diptych.inference.galleries.vectors import Vectors
from diptych.runtime.files import bytes_of, write_atomically

FOLDER = "vectors"
CONTENTS, VECTORS, CHECK = "contents", "vectors", "check"  # tensors: SHA-256 (N, 32); vectors (N, S); CRC-32 of both
CHECKED = 4  # length in bytes of the CRC-32 before the index
MANY = 30_000  # minimum number of vectors for which an index is built
RECALL, NEAREST, TRIED = 0.995, 10, 200  # minimum recall at 10, measured with 200 query vectors


class FileVectors:
    """A store of vectors in a file. A damaged file is replaced, because its vectors can be computed again."""

    def __init__(self, folder: Path, model: str) -> None:
        self.path = folder / FOLDER / f"{model[:20]}.safetensors"
        self._contents, self._vectors = _read(self.path)
        self._rows = {content: row for row, content in enumerate(self._contents)}
        self._index = _read_index(self._index_path, len(self._contents))
        self._last: _SearchedRows | None = None

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
        self._last = self._index = None
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
        if self._last is None or self._last.contents is not contents:
            rows = [self._rows[content] for content in contents]
            self._last = _SearchedRows(contents, frozenset(rows), torch.from_numpy(self._vectors[rows]))
        if self._index is not None and len(contents) >= MANY:
            scores, places = self._index.search(query[None], 2 * most)
            hits = zip(places[0].tolist(), scores[0].tolist(), strict=True)
            nearest = [(self._contents[row], score) for row, score in hits if row in self._last.rows][:most]
            if len(nearest) == most:
                return nearest
        products, places = (self._last.vectors @ torch.from_numpy(query)).topk(min(most, len(contents)))
        return [(contents[place], score) for place, score in zip(places.tolist(), products.tolist(), strict=True)]


@dataclass(frozen=True)
class _SearchedRows:
    """The vectors that the last search compared. Later searches reuse them."""

    contents: Sequence[str]
    rows: frozenset[int]
    vectors: Tensor


def _make_index(vectors: Vectors) -> Any | None:
    """Build an index that searches as many clusters as it needs for RECALL. Return None if faiss is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    count, width = vectors.shape
    clusters = int(4 * count**0.5)
    index: Any = faiss.index_factory(width, f"IVF{clusters},Flat", faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = 39  # faiss warns if it has fewer vectors per centroid
    index.train(vectors)
    index.add(vectors)
    tried = vectors[:: max(1, count // TRIED)]
    wanted = (torch.from_numpy(tried) @ torch.from_numpy(vectors).T).topk(NEAREST).indices.numpy()
    index.nprobe = 8
    while index.nprobe < clusters:
        _, nearest = index.search(tried, NEAREST)
        if sum(len(np.intersect1d(*rows)) for rows in zip(wanted, nearest, strict=True)) >= RECALL * wanted.size:
            break
        index.nprobe *= 2
    return index


def _read_index(path: Path, count: int) -> Any | None:
    """Read the index of `count` vectors.

    Return None if the index is missing or damaged, or has another number of vectors.
    """
    if count < MANY or not path.exists():
        return None
    try:
        import faiss

        content = np.frombuffer(bytes_of(path), np.uint8)
        if content[:CHECKED].tobytes() != _check(content[CHECKED:]).tobytes():  # faiss may crash on damaged files
            return None
        index = faiss.deserialize_index(content[CHECKED:])
    except (ImportError, OSError, RuntimeError, MemoryError):
        return None
    return index if index.ntotal == count else None


def _read(path: Path) -> tuple[list[str], Vectors]:
    try:
        saved = load(bytes_of(path))
        hashes, vectors, check = saved[CONTENTS], saved[VECTORS], saved[CHECK]
    except (OSError, SafetensorError, KeyError):
        return [], np.zeros((0, 0), np.float32)
    if hashes.shape != (len(vectors), 32) or vectors.ndim != 2 or check.tolist() != _check(hashes, vectors).tolist():
        return [], np.zeros((0, 0), np.float32)
    return [row.tobytes().hex() for row in hashes], vectors


def _check(*arrays: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the CRC-32 of the concatenated bytes of all arrays."""
    crc = 0
    for array in arrays:
        crc = zlib.crc32(array.data, crc)
    return np.array([crc], np.uint32)
