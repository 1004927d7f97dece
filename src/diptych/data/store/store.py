"""Records with their regions on disk: shards in the safetensors format, memory-mapped for reading.

    STORE/store.json             the feature contract, the list of shards, and its own CRC-32
      shard-00000.safetensors    boxes, scores, classes, features: a row per region; whole: a row per record;
                                 ends: the end of each record's rows; words: records as JSON; splits: the place of a
                                 record's split in the shard's list in store.json; checks, word_checks: a CRC-32
                                 per record. The CRC-32 of these tables is in store.json
      failures.jsonl             images that could not be extracted, with reasons

A shard is written completely or not at all. An interrupted extraction resumes after the last shard.
"""

from __future__ import annotations

import json
import os
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from diptych.core import FeatureContract, Record, Regions
from diptych.core.folders import DETECTOR
from diptych.data.store import shards
from diptych.data.store.record_json import record_from_json, record_to_json
from diptych.data.store.shard import Shard, with_image
from diptych.data.store.shards import LAYOUT, PER_REGION, TABLES, ShardEntry, ShardList
from diptych.data.store.tensor_file import tensor_file
from diptych.runtime.configs import first_problem, of_json
from diptych.runtime.errors import DataError, Terminated, explained
from diptych.runtime.files import check_name, parse_json, sha256_of_json, text_of, write_atomically
from diptych.vision.detectors.weights import check_detector
from diptych.vision.features.profile import refuse_other_features

INDEX, FAILURES = "store.json", "failures.jsonl"
FORMAT = 3  # version of a store's format; version 2 had no table of splits, and fingerprints of another kind


class Store:
    """A sequence of records on disk.

    `words(i)` returns a record without its regions, `record(i)` with them. Raises DataError if the folder is not a
    store. Reading a damaged record raises DataError with the record's key and the shard.
    """

    limits: Mapping[str, int] = {}  # {split: number of its first records that `split` returns}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contract, self.shards = _read_index(folder)
        self.hides_images = False
        self._join([Shard(folder / one.name, one) for one in self.shards])

    def _join(self, parts: Sequence[Shard | Store]) -> None:
        self._parts, self._starts = parts, list(accumulate(map(len, parts), initial=0))

    @property
    def content(self) -> str:
        """A digest of the feature contract and of the shards' checksums."""
        return sha256_of_json([self.contract.to_json(), msgspec.to_builtins(self.shards)])

    def __len__(self) -> int:
        return self._starts[-1]

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the index of the shard (or of the joined store) that has a record, and the record's row there."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        part = bisect_right(self._starts, index) - 1
        return part, index - self._starts[part]

    def words(self, index: int) -> Record:
        """Return a record without its regions."""
        part, row = self._locate(index)
        return self._parts[part].words(row)

    def record(self, index: int) -> Record:
        """Return a record with its regions, in single precision."""
        return replace(self.words(index), regions=self.regions(index))

    def regions(self, index: int) -> Regions:
        """Return the regions of a record in single precision."""
        return self.stored_regions(index).widened()

    def stored_regions(self, index: int) -> Regions:
        """Return the regions of a record as stored, with features and class probabilities in half precision."""
        part, row = self._locate(index)
        regions = self._parts[part].stored_regions(row)
        return regions.blank() if self.hides_images else regions

    def without_images(self) -> Store:
        """Return a copy of the store with blank regions (`Regions.blank`), for the blind baseline."""
        hiding = copy(self)
        hiding.hides_images = True
        return hiding

    def region_counts(self, indices: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return the number of regions of each of these records."""
        counts, wanted = np.zeros(len(self), np.int64), np.asarray(indices, np.int64)
        for part in np.unique(np.searchsorted(self._starts, wanted, side="right")) - 1:  # the others are not read
            own = self._parts[part]
            counts[self._starts[part] :][: len(own)] = own.region_counts(range(len(own)))
        return counts[wanted]

    def split(self, name: str) -> list[int]:
        """Return the indices of the records of a split, or of several splits, such as `cc+sbu`."""
        rows: list[int] = self.rows_of(splits_in(name))[: self.limits.get(name)].tolist()
        return rows

    def rows_of(self, splits: Container[str]) -> npt.NDArray[np.int64]:
        """Return the indices of the records of these splits, in order."""
        own = [first + part.rows_of(splits) for first, part in zip(self._starts, self._parts, strict=False)]
        return np.concatenate([np.zeros(0, np.int64), *own])

    @cached_property
    def split_names(self) -> list[str]:
        """The split of each record, in order."""
        return [name for part in self._parts for name in part.split_names]

    @property
    def splits(self) -> dict[str, int]:
        """The number of records of each split."""
        return dict(Counter(self.split_names))

    def detector(self) -> Path | None:
        """Return the folder of the store's detector after checking it, or None if the store has no detector.

        Raises CheckpointError if the detector is damaged, or did not make the features of the store.
        """
        folder = self.folder / DETECTOR
        if not folder.is_dir():
            return None
        check_detector(folder, self.contract.weights)
        return folder

    def keys(self) -> set[str]:
        return {self.words(i).key for i in range(len(self))}


class StoreWriter:
    """Adds records to a new or existing store. Raises DataError if the store has another feature contract."""

    def __init__(self, folder: Path, contract: FeatureContract, records_per_shard: int = 1000) -> None:
        self.folder, self.contract, self.records_per_shard = folder, contract, records_per_shard
        self._pending: list[tuple[Record, bytes]] = []  # records with their JSON, not written yet
        self._shards: list[ShardEntry] = []
        self._thread, self._writing = ThreadPoolExecutor(1, "store"), cast("Future[None] | None", None)
        self.done: dict[str, Path | None] = {}  # {key of a record in the store: path of its image}
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / INDEX).exists():
            before = Store(folder)
            refuse_other_features(folder, before.contract, contract)
            self._shards = before.shards
            self.done = {words.key: words.image for words in map(before.words, range(len(before)))}

    def add(self, record: Record) -> None:
        """Add a record with regions. Raises DataError for an invalid record, and for a key that is there already."""
        assert record.regions is not None, record.key
        if record.key in self.done:
            raise DataError("the store already has this key; give each record its own key", key=record.key)
        words = _words(with_image(record, lambda image: os.path.relpath(image, self.folder)))
        self.done[record.key] = record.image
        self._pending.append((halved(record), words))
        if len(self._pending) == self.records_per_shard:
            self._hand_over()

    def flush(self) -> None:
        """Write the pending records as a shard, then the index. An empty store is not written."""
        self._hand_over()
        self._wait()

    def _hand_over(self) -> None:
        """Pass the pending records to the writing thread. If it failed to write the previous shard, raise its error."""
        records, self._pending = self._pending, []
        columns = _columns(*zip(*records, strict=True)) if records else {}
        splits = _splits([record for record, _ in records])
        self._wait()
        check = shards.tensors_check({table: columns[table][0] for table in TABLES}) if records else 0
        self._writing = self._thread.submit(self._write, tensor_file(columns), len(records), check, [*splits])

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, shard: list[memoryview], records: int, check: int, splits: list[str]) -> None:
        if records:
            name = f"shard-{len(self._shards):05d}.safetensors"
            write_atomically(self.folder / name, *shard)
            self._shards.append(ShardEntry(name, records, check, splits))
        if self._shards:
            index = {"format": FORMAT, "contract": self.contract.to_json(), "shards": msgspec.to_builtins(self._shards)}
            index["diptych"] = version("diptych")
            index["check"] = shards.index_check(index)
            write_atomically(self.folder / INDEX, json.dumps(index, indent=1).encode())

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After Ctrl-C, pending records are still written. After any other error they are not, because a second error
        # would hide the first.
        try:
            if kind is None or issubclass(kind, KeyboardInterrupt | Terminated):
                self.flush()
        finally:
            self._thread.shutdown()


def _words(record: Record) -> bytes:
    """Return a record, without its regions, as JSON. Raises DataError if the JSON could not be read back."""
    # Bytes of an image name that are not UTF-8 are written as surrogates, which `json.loads` of bytes accepts.
    written = json.dumps(record_to_json(record), ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        record_from_json(written)
    except ValueError as error:
        raise DataError(f"a store cannot hold this record: {first_problem(error)}", key=record.key) from error
    return written


def _columns(records: Sequence[Record], words: Sequence[bytes]) -> dict[str, list[Tensor]]:
    """Return tensor name -> its pieces, one for each record of a shard, to be concatenated."""
    rows, splits = [cast(Regions, record.regions).tensors() for record in records], _splits(records)
    columns = {name: [row[name] for row in rows] for name in PER_REGION if name in rows[0]}
    if "whole" in rows[0]:
        columns["whole"] = [row["whole"][None] for row in rows]
    tables = {
        "ends": torch.tensor(np.cumsum([len(row["scores"]) for row in rows])),
        "sizes": torch.tensor([cast(Regions, record.regions).size for record in records]),
        "checks": torch.tensor([shards.tensors_check(row) for row in rows]),
        "words": torch.frombuffer(bytearray(b"".join(words)), dtype=torch.uint8),
        "word_checks": torch.tensor([zlib.crc32(word) for word in words]),
        "word_ends": torch.tensor(np.cumsum([len(word) for word in words])),
        "splits": torch.tensor([splits[record.split] for record in records]),
    }
    return columns | {name: [table] for name, table in tables.items()}


def _splits(records: Sequence[Record]) -> dict[str, int]:
    """Return split -> its place among the splits of the records."""
    return {split: place for place, split in enumerate(dict.fromkeys(record.split for record in records))}


def halved(record: Record) -> Record:
    """Return the record with its regions in the types of a store. Features are in half precision, as in the papers."""
    regions = cast(Regions, record.regions)
    stored = {name: value for name, value in regions.tensors().items() if name in (*PER_REGION, "whole")}
    columns = {name: value.to(LAYOUT[name][1]).contiguous() for name, value in stored.items()}
    return replace(record, regions=Regions(size=regions.size, **columns))


def _read_index(folder: Path) -> tuple[FeatureContract, list[ShardEntry]]:
    check_name(folder)
    path = folder / INDEX
    if not path.is_file():
        raise DataError(
            f"{folder} is not a store: it has no {INDEX}; make one with `diptych extract DATA --out {folder}`"
        )
    with explained(DataError, f"{path} is damaged", "delete the folder and extract again"):
        index = parse_json(text_of(path))
        if index["format"] != FORMAT:
            detector = folder / DETECTOR if (folder / DETECTOR).is_dir() else "DETECTOR"
            raise DataError(
                f"{path} has format {index['format']!r}, but this version of Diptych reads {FORMAT}; make the store "
                f"again in a new folder: diptych extract DATA --out OUT --detector {detector} (for a store made from "
                "features: --detector given --features PATH)"
            )
        if index["check"] != shards.index_check(index):
            raise ValueError("its checksum is wrong")
        return of_json(FeatureContract, index["contract"]), msgspec.convert(index, ShardList).shards


def splits_in(name: str) -> set[str]:
    """Return the splits of a joined name: {"cc", "sbu"} for `cc+sbu`."""
    return set(name.split("+"))


def check_split(split: str, where: object, splits: Mapping[str, int], remedy: str = "") -> None:
    """Raise DataError unless all splits in `split`, such as `cc+sbu`, have records.

    `splits`: split -> number of records.
    """
    if missing := sorted(splits_in(split) - splits.keys()):
        there = ", ".join(f"{name} ({count:,})" for name, count in splits.items()) or "none at all"
        raise DataError(f"{where} has no records in split {missing[0]!r}; it has {there}{remedy}")


def iterate(store: Store, split: str | None = None) -> Iterator[Record]:
    """Yield the records in order, without their regions: all, or those of `split`, such as `val` or `cc+sbu`."""
    for index in range(len(store)) if split is None else store.split(split):
        yield store.words(index)
