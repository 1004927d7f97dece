"""Vectors in one safetensors file for each model, searched by products, from 30,000 on by faiss where it is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from diptych.files import write_atomically
from diptych.serving.galleries import Vectors
from diptych.tasks.two_towers import Gallery

FOLDER = "vectors"
CONTENTS, VECTORS = "contents", "vectors"  # (N, 32) bytes of SHA-256; (N, S)


class FileVectors:
    """A file that is damaged, or cut short, is made anew: what it held can be computed again."""

    def __init__(self, folder: Path, model: str) -> None:
        self.path = folder / FOLDER / f"{model[:20]}.safetensors"
        self._contents, self._vectors = _read(self.path)
        self._rows = {content: row for row, content in enumerate(self._contents)}
        self._opened: Gallery | None = None  # of the contents that were searched last

    def known(self, contents: Sequence[str]) -> set[str]:
        return self._rows.keys() & set(contents)

    def add(self, contents: Sequence[str], vectors: Vectors) -> None:
        new = [row for row, content in enumerate(contents) if content not in self._rows]
        more = np.asarray(vectors, np.float32)[new]
        self._vectors = np.concatenate([self._vectors, more]) if len(self._contents) else more
        self._contents += [contents[row] for row in new]
        self._rows = {content: row for row, content in enumerate(self._contents)}
        hashes = np.frombuffer(bytes.fromhex("".join(self._contents)), np.uint8).reshape(-1, 32)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, save({CONTENTS: hashes, VECTORS: np.ascontiguousarray(self._vectors)}))

    def search(self, query: NDArray[np.float32], contents: Sequence[str], most: int) -> list[tuple[str, float]]:
        wanted = tuple(contents)
        if self._opened is None or self._opened.keys != wanted:
            rows = [self._rows[content] for content in wanted]
            self._opened = Gallery(wanted, torch.from_numpy(self._vectors[rows]))
        (found,) = self._opened.search(torch.from_numpy(query)[None], most)
        return [(one.key, one.score) for one in found]


def _read(path: Path) -> tuple[list[str], Vectors]:
    try:
        kept = load_file(path)
        hashes, vectors = kept[CONTENTS], kept[VECTORS]
    except (OSError, SafetensorError, KeyError):
        return [], np.zeros((0, 0), np.float32)
    if hashes.dtype != np.uint8 or hashes.shape != (len(vectors), 32) or vectors.dtype != np.float32:
        return [], np.zeros((0, 0), np.float32)
    return [row.tobytes().hex() for row in hashes], vectors
