"""Pictures and captions that are held against each other, and the table of their scores.

The table has a row a picture and a column a caption, and it may lie in a file: what was scored stays scored when the
job is killed. Pictures are read one at a time, so a gallery may be larger than memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from diptych.core import Record
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.files import parse_json, text_of, write_atomically

Table = NDArray[np.float32]
Cells = Sequence[NDArray[np.int64]]  # for each picture, the captions that it is held against
TABLE, WHOSE = "scores.npy", "scores.json"
NOT_ASKED = np.float32(0)  # so that a file of a table begins empty and takes no room on the disk
LEAST = np.float32(1e-30)  # stands for a score of exactly 0
FLUSH_EVERY = 100  # batches


@runtime_checkable
class Records(Protocol):
    """A list of records, or what reads one when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Record: ...


@dataclass(frozen=True)
class Caption:
    key: str
    text: str
    picture: int  # row


@dataclass(frozen=True)
class RetrievalGallery:
    """Each of the `records` is asked for when its regions are needed. `captions` are in their order."""

    records: Records
    keys: tuple[str, ...]
    captions: tuple[Caption, ...]

    @classmethod
    def of(cls, records: Records, words: Sequence[Record] | None = None) -> RetrievalGallery:
        """`words`: the same records without regions, where those are costly to read. Pictures without captions are
        left out: a search for them cannot be asked."""
        worded = [records[row] for row in range(len(records))] if words is None else words
        kept = [row for row, record in enumerate(worded) if any(text.strip() for text in record.captions)]
        if not kept:
            raise DataError(
                f"an empty gallery: none of {len(worded)} pictures has a caption to search with; choose another split "
                "with --split"
            )
        captions = [
            Caption(f"{worded[row].key}#{number}", text, at)
            for at, row in enumerate(kept)
            for number, text in enumerate(worded[row].captions)
            if text.strip()
        ]
        return cls(GalleryRows(records, kept), tuple(worded[row].key for row in kept), tuple(captions))

    @property
    def owners(self) -> NDArray[np.int64]:
        """The row of each caption's picture."""
        return np.array([caption.picture for caption in self.captions], dtype=np.int64)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.keys), len(self.captions)

    def digest(self) -> str:
        digest = hashlib.sha256()
        for text in (*self.keys, *(f"{c.key}\t{c.text}" for c in self.captions)):
            digest.update(text.encode() + b"\n")
        return digest.hexdigest()


class GalleryRows:
    """Some of the records, read when asked for; the last one is remembered."""

    def __init__(self, records: Records, rows: Sequence[int]) -> None:
        self._records, self._rows = records, rows
        self._last: tuple[int, Record] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int, /) -> Record:
        if self._last is None or self._last[0] != row:
            self._last = (row, self._records[self._rows[row]])
        return self._last[1]


def open_table(gallery: RetrievalGallery, folder: Path | None, whose: str) -> Table:
    """The table of `folder`, with what was scored there before; a new one where there is none, in memory without a
    folder. `whose` names the model: a table of another model, or of another gallery, is refused."""
    if folder is None:
        return np.zeros(gallery.shape, dtype=np.float32)
    wanted = {"format": 1, "model": whose, "gallery": gallery.digest(), "shape": list(gallery.shape)}
    if (folder / WHOSE).is_file():
        try:
            found = parse_json(text_of(folder / WHOSE))
            table: Table = np.load(folder / TABLE, mmap_mode="r+", allow_pickle=False)
            if not isinstance(found, dict) or table.dtype != np.float32:
                raise ValueError("no scores of pairs")
        except (OSError, ValueError) as error:
            raise DataError(f"the scores in {folder} are damaged ({error}); delete that folder") from error
        if found != wanted or table.shape != gallery.shape:
            other = [name for name in wanted if found.get(name) != wanted[name]] or ["shape"]
            raise RecipeError(
                f"{folder} holds scores of another {' and another '.join(other)}; give another folder, or delete it"
            )
        return table
    folder.mkdir(parents=True, exist_ok=True)
    made: Table = np.lib.format.open_memmap(folder / TABLE, "w+", np.float32, gallery.shape)
    write_atomically(folder / WHOSE, json.dumps(wanted, indent=1).encode())
    return made


def put(
    table: Table,
    gallery: RetrievalGallery,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    broken = np.flatnonzero(~np.isfinite(scores))
    if len(broken):
        caption = gallery.captions[columns[broken[0]]]
        raise DataError(
            f"{len(broken)} of {len(scores)} scores are not finite, so nothing can be ranked (the first: picture "
            f"{gallery.keys[rows[broken[0]]]}, caption {caption.key}, {caption.text!r}). `diptych check` finds such "
            "features; if there are none, the weights are broken: take an earlier checkpoint"
        )
    table[rows, columns] = np.where(scores == NOT_ASKED, LEAST, scores)


def not_asked(table: Table, cells: Cells) -> list[NDArray[np.int64]]:
    """The cells that are still empty."""
    return [columns[table[row, columns] == NOT_ASKED] for row, columns in enumerate(cells)]


def joined(*several: Cells) -> list[NDArray[np.int64]]:
    return [np.unique(np.concatenate(columns)) for columns in zip(*several, strict=True)]


def pairs(cells: Cells, order: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Picture by picture; captions by `order` (their lengths), so that those scored together are padded little."""
    for row, columns in enumerate(cells):
        for column in columns[np.argsort(order[columns], kind="stable")]:
            yield row, int(column)
