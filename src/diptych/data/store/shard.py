"""A shard of a store: its file, memory-mapped, whose tables and records are checked when they are first read."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from torch import Tensor

from diptych.core import Record, Regions
from diptych.data.store import shards
from diptych.data.store.caching import PickledWithoutCaches
from diptych.data.store.record_json import record_from_json
from diptych.data.store.shards import PER_REGION, TABLES, ShardEntry
from diptych.runtime.configs import first_problem
from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import refuse_endless


class Shard(PickledWithoutCaches):
    def __init__(self, path: Path, entry: ShardEntry) -> None:
        self.path, self._entry, self._name = path, entry, str(path)  # `os.stat` of a text is three times as fast
        self._verified = bytearray(entry.records)  # for each record, 1 if this process has checked its regions

    def __len__(self) -> int:
        return self._entry.records

    @cached_property
    def _reader(self) -> Any:
        try:
            refuse_endless(self.path)
            with self.path.open("rb") as file:  # safetensors would call an unreadable file missing
                self._bytes = os.fstat(file.fileno()).st_size
            return safe_open(str(self.path), framework="pt")
        except (OSError, SafetensorError) as error:
            way_out = "make it readable, copy it again, or extract again to another folder"
            raise DataError(f"cannot read {self.path}: {error}; {way_out}") from error

    @cached_property
    def _tables(self) -> dict[str, npt.NDArray[Any]]:
        remedy = f"delete {self.path.parent} and extract again"
        with explained(DataError, f"{self.path} is damaged", remedy, SafetensorError):
            tables: dict[str, Tensor] = {name: self._reader.get_tensor(name) for name in (*TABLES, "words")}
        if shards.tensors_check({name: tables[name] for name in TABLES}) != self._entry.check:
            raise DataError(f"{self.path} is damaged (the checksum of its tables differs from store.json); {remedy}")
        shards.check_tables(tables, self._entry, self.path)
        return {name: table.numpy() for name, table in tables.items()}

    def _rows(self, table: str) -> npt.NDArray[Any]:
        """Return the values of a table of the shard.

        The file's size is checked first, because reading a truncated memory map kills the process (SIGBUS).
        """
        tables = self._tables
        with suppress(FileNotFoundError):  # a file that was deleted after it was opened stays mapped
            if os.stat(self._name).st_size < self._bytes:
                raise DataError(
                    "a file shrank while it was read; extract or copy the store again", shard=self.path.name
                )
        return tables[table]

    @cached_property
    def _columns(self) -> dict[str, Tensor]:
        """Memory-mapped tensors with a row per region. Slices by safetensors would leak 300 bytes per record."""
        there = {*PER_REGION, "whole"} & set(self._reader.keys())
        columns: dict[str, Tensor] = {name: self._reader.get_tensor(name) for name in sorted(there)}
        shards.check_columns(columns, int(self._rows("ends")[-1]), len(self), self.path)
        return columns

    def region_counts(self, rows: Sequence[int]) -> npt.NDArray[np.int64]:
        counts: npt.NDArray[np.int64] = np.diff(self._rows("ends"), prepend=0)[rows]
        return counts

    def words(self, row: int) -> Record:
        return with_image(self._stored_words(row), lambda image: self.path.parent / image)

    @property
    def split_names(self) -> list[str]:
        return [self._entry.splits[place] for place in self._rows("splits").tolist()]

    def rows_of(self, splits: Container[str]) -> npt.NDArray[np.int64]:
        places = [place for place, name in enumerate(self._entry.splits) if name in splits]
        every = len(places) == len(self._entry.splits)
        return np.arange(len(self)) if every else np.flatnonzero(np.isin(self._rows("splits"), places))

    def _stored_words(self, row: int) -> Record:
        start, end = _span(self._rows("word_ends"), row)
        written = self._tables["words"][start:end].tobytes()
        try:
            if zlib.crc32(written) != int(self._tables["word_checks"][row]):
                raise ValueError("their checksum is wrong")
            return record_from_json(written)
        except ValueError as error:
            problem = f"the texts of record {row + 1} are damaged ({first_problem(error)})"
            raise DataError(f"{problem}; delete {self.path.parent} and extract again", shard=self.path.name) from error

    def stored_regions(self, row: int) -> Regions:
        start, end = _span(self._rows("ends"), row)
        columns: dict[str, Tensor] = {}
        with suppress(SafetensorError, IndexError):  # the header may be damaged; the checksum below reports that
            columns = {name: every[start:end] for name, every in self._columns.items() if name != "whole"}
            if "whole" in self._columns:
                columns["whole"] = self._columns["whole"][row]
        width, height = self._tables["sizes"][row].tolist()
        if not self._verified[row]:
            if shards.tensors_check(columns) != int(self._tables["checks"][row]):
                raise DataError(
                    "the checksum of the regions is wrong; extract again", key=self.words(row).key, shard=self.path.name
                )
            self._verified[row] = True
        return Regions(size=(width, height), **columns)


def _span(ends: npt.NDArray[Any], row: int) -> tuple[int, int]:
    return (int(ends[row - 1]) if row else 0), int(ends[row])


def with_image(record: Record, change: Callable[[Path], str | Path]) -> Record:
    """Return the record with `change` applied to the image's path if the path is relative.

    A store keeps paths relative to its own folder. These paths are valid from any working directory, and images and
    store can be moved together.
    """
    if record.image is None or record.image.is_absolute():
        return record
    return replace(record, image=Path(os.path.normpath(change(record.image))))
