"""Records with their regions on disk: shards in the safetensors format, read by memory map.

    STORE/
      store.json                 the feature contract, and the shards with their sizes
      shard-00000.safetensors    boxes, scores, classes, features, whole: the rows of all its records, stacked;
                                 ends: where each record's rows end; words: their JSON; checks, word_checks: a CRC32 of
                                 either for each record. That of these tables stands in store.json, which has its own
      failures.jsonl             what could not be extracted, and why

A shard is written whole or not at all, and it is the unit of resume.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from diptych.core import FeatureContract, Record, Regions
from diptych.data.store.record_json import record_from_json, record_to_json
from diptych.data.store.shards import (
    LAYOUT,
    PER_REGION,
    TABLES,
    ShardEntry,
    index_check,
    refuse_columns,
    refuse_tables,
    tensors_check,
)
from diptych.data.store.tensor_file import tensor_file
from diptych.runtime.configs import first_problem
from diptych.runtime.errors import DataError, Terminated
from diptych.runtime.files import check_name, parse_json, refuse_endless, text_of, write_atomically
from diptych.vision.detectors.weights import check_detector
from diptych.vision.features.profile import differences

INDEX, FAILURES, DETECTOR = "store.json", "failures.jsonl", "detector"
FORMAT = 2  # of store.json and its shards; 1 had no checks of words and tables


class Store:
    """A sequence of records. `words(i)` leaves the regions on disk, `record(i)` reads them too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = _read_index(folder)
        self.contract = FeatureContract.from_json(index["contract"])
        self._shards = [_Shard(folder / one.name, one.records, one.check) for one in index["shards"]]
        self._starts = np.cumsum([0, *(len(shard) for shard in self._shards)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _find(self, index: int) -> tuple[_Shard, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._shards[shard], index - int(self._starts[shard])

    def words(self, index: int) -> Record:
        shard, row = self._find(index)
        return shard.words(row)

    def record(self, index: int) -> Record:
        """Raises DataError, naming record and shard, where its bytes are not what was written."""
        return replace(self.words(index), regions=self.regions(index))

    def regions(self, index: int) -> Regions:
        return self.stored_regions(index).widened()

    def stored_regions(self, index: int) -> Regions:
        """As they lie on the disk, features and class probabilities in half precision."""
        shard, row = self._find(index)
        return shard.regions(row)

    def region_count(self, index: int) -> int:
        shard, row = self._find(index)
        start, end = shard.span(row)
        return end - start

    def split(self, name: str) -> list[int]:
        """Of one split, or of several: `cc+sbu`."""
        names = splits_in(name)
        return [i for i, split in enumerate(self.split_names) if split in names]

    @cached_property
    def split_names(self) -> list[str]:
        """Of each record, in order."""
        return [shard.split(row) for shard in self._shards for row in range(len(shard))]

    @property
    def splits(self) -> dict[str, int]:
        return dict(Counter(self.split_names))

    def detector(self) -> Path | None:
        """The folder of the detector it carries, whose files were just held against the contract; None without one.

        Raises CheckpointError where it is damaged, or not the one that made the features.
        """
        folder = self.folder / DETECTOR
        if not folder.is_dir():
            return None
        check_detector(folder, self.contract.weights)
        return folder

    def keys(self) -> set[str]:
        return {self.words(i).key for i in range(len(self))}


class StoreWriter:
    """Adds records to a store, a shard at a time. Opened on a store that exists, it goes on where that ended."""

    def __init__(self, folder: Path, contract: FeatureContract, records_per_shard: int = 1000) -> None:
        self.folder, self.contract, self.records_per_shard = folder, contract, records_per_shard
        self._pending: list[tuple[Record, bytes]] = []  # with its words
        self._shards: list[ShardEntry] = []
        self._thread, self._writing = ThreadPoolExecutor(1, "store"), cast("Future[None] | None", None)
        self.done: dict[str, Path | None] = {}  # the picture of each key that is there
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / INDEX).exists():
            before = Store(folder)
            if different := differences(before.contract, contract):
                raise DataError(
                    f"{folder} holds features made in another way ({'; '.join(different)}); extract to another folder, "
                    f"or delete this one"
                )
            self._shards = _read_index(folder)["shards"]
            self.done = {words.key: words.image for words in map(before.words, range(len(before)))}

    def add(self, record: Record) -> None:
        """Raises DataError for a key that is there already, and for words that would not be read again."""
        assert record.regions is not None, record.key
        if record.key in self.done:
            raise DataError("this key is in the store already; keys must be unique", key=record.key)
        words = _words(_placed(record, lambda picture: os.path.relpath(picture, self.folder)))
        self.done[record.key] = record.image
        self._pending.append((_kept(record), words))
        if len(self._pending) == self.records_per_shard:
            self._hand_over()

    def flush(self) -> None:
        """Write the records gathered so far as a shard, then the index that names it. No records, no store."""
        self._hand_over()
        self._wait()

    def _hand_over(self) -> None:
        """A thread waits for the disk, while the next are gathered. What went wrong with the last is raised here."""
        records, self._pending = self._pending, []
        columns = _columns(*zip(*records, strict=True)) if records else {}
        self._wait()
        check = tensors_check({table: columns[table][0] for table in TABLES}) if records else 0
        self._writing = self._thread.submit(self._write, tensor_file(columns), len(records), check)

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, shard: list[memoryview], records: int, check: int) -> None:
        if records:
            name = f"shard-{len(self._shards):05d}.safetensors"
            write_atomically(self.folder / name, *shard)
            self._shards.append(ShardEntry(name, records, check))
        if not self._shards:
            return
        index = {"format": FORMAT, "contract": self.contract.to_json(), "shards": msgspec.to_builtins(self._shards)}
        write_atomically(self.folder / INDEX, json.dumps(index | {"check": index_check(index)}, indent=1).encode())

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A stop by the user still keeps what was extracted; an error of ours does not hide behind a second one.
        try:
            if kind is None or issubclass(kind, KeyboardInterrupt | Terminated):
                self.flush()
        finally:
            self._thread.shutdown()


class _Shard:
    def __init__(self, path: Path, records: int, check: int) -> None:
        self.path, self._records, self._check = path, records, check
        self._seen_whole = bytearray(records)  # of which records the regions were held against their check here

    def __getstate__(self) -> dict[str, Any]:
        """Without the open file and what was read: another process opens it itself."""
        kept = ("path", "_records", "_check", "_seen_whole")
        return {name: value for name, value in self.__dict__.items() if name in kept}

    def __len__(self) -> int:
        return self._records

    @cached_property
    def _reader(self) -> Any:
        try:
            refuse_endless(self.path)
            self._bytes = self.path.stat().st_size
            return safe_open(str(self.path), framework="pt")
        except (OSError, SafetensorError) as error:
            raise DataError(
                f"cannot read {self.path}: {error}; delete {self.path.parent} and extract again, or copy it again"
            ) from error

    @cached_property
    def _tables(self) -> dict[str, npt.NDArray[Any]]:
        try:
            tables: dict[str, Tensor] = {name: self._reader.get_tensor(name) for name in (*TABLES, "words")}
        except SafetensorError as error:
            raise DataError(f"{self.path} is damaged ({error}); delete {self.path.parent} and extract again") from error
        if tensors_check({name: tables[name] for name in TABLES}) != self._check:
            raise DataError(f"{self.path} is not what was written (its tables, or {INDEX}); extract it again")
        refuse_tables(tables, self._records, self.path)
        return {name: table.numpy() for name, table in tables.items()}

    def _rows(self, table: str) -> npt.NDArray[Any]:
        """Of a table; to read what was cut off since the file was opened would end the process (SIGBUS)."""
        if self._tables and self.path.exists() and self.path.stat().st_size < self._bytes:  # what is gone stays mapped
            raise DataError("was cut short while it is being read; extract or copy it again", shard=self.path.name)
        return self._tables[table]

    @cached_property
    def _columns(self) -> dict[str, Tensor]:
        """Mapped, and read where they are looked at. The library's own slices leak some 300 bytes a record."""
        there = {*PER_REGION, "whole"} & set(self._reader.keys())
        columns: dict[str, Tensor] = {name: self._reader.get_tensor(name) for name in sorted(there)}
        refuse_columns(columns, int(self._rows("ends")[-1]), self._records, self.path)
        return columns

    def span(self, row: int) -> tuple[int, int]:
        return _span(self._rows("ends"), row)

    def words(self, row: int) -> Record:
        return _placed(self._written(row), lambda picture: self.path.parent / picture)

    def split(self, row: int) -> str:
        return self._written(row).split

    def _written(self, row: int) -> Record:
        start, end = _span(self._rows("word_ends"), row)
        written = self._tables["words"][start:end].tobytes()
        if zlib.crc32(written) != int(self._tables["word_checks"][row]):
            raise DataError(
                f"the words of record {row + 1} are not what was written; delete {self.path.parent} and extract again",
                shard=self.path.name,
            )
        try:
            return record_from_json(written)
        except ValueError as error:
            raise DataError(
                f"record {row + 1} is none that Diptych writes ({first_problem(error)}); delete {self.path.parent} and "
                "extract again",
                shard=self.path.name,
            ) from error

    def regions(self, row: int) -> Regions:
        start, end = self.span(row)
        columns: dict[str, Tensor] = {}
        with suppress(SafetensorError, IndexError):  # of a damaged header: what is missing is seen below
            columns = {name: every[start:end] for name, every in self._columns.items() if name != "whole"}
            if "whole" in self._columns:
                columns["whole"] = self._columns["whole"][row]
        width, height = self._tables["sizes"][row].tolist()
        if not self._seen_whole[row]:
            if tensors_check(columns) != int(self._tables["checks"][row]):
                raise DataError(
                    "its bytes are not what was written; extract again", key=self.words(row).key, shard=self.path.name
                )
            self._seen_whole[row] = True
        return Regions(size=(width, height), **columns)


def _span(ends: npt.NDArray[Any], row: int) -> tuple[int, int]:
    return (int(ends[row - 1]) if row else 0), int(ends[row])


def _words(record: Record) -> bytes:
    """All of it but its regions, as JSON."""
    # The name of a picture need not be UTF-8 (its odd bytes are surrogates); `json.loads` of bytes reads them so.
    written = json.dumps(record_to_json(record), ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        record_from_json(written)
    except ValueError as error:
        raise DataError(f"no record that a store can hold: {first_problem(error)}", key=record.key) from error
    return written


def _columns(records: Sequence[Record], words: Sequence[bytes]) -> dict[str, list[Tensor]]:
    """One shard, in pieces. Features and class probabilities are in half precision, as the papers' own files are."""
    rows = [cast(Regions, record.regions).tensors() for record in records]
    columns = {name: [row[name] for row in rows] for name in PER_REGION if name in rows[0]}
    if "whole" in rows[0]:
        columns["whole"] = [row["whole"][None] for row in rows]
    tables = {
        "ends": torch.tensor(np.cumsum([len(row["scores"]) for row in rows])),
        "sizes": torch.tensor([cast(Regions, record.regions).size for record in records]),
        "checks": torch.tensor([tensors_check(row) for row in rows]),
        "words": torch.frombuffer(bytearray(b"".join(words)), dtype=torch.uint8),
        "word_checks": torch.tensor([zlib.crc32(word) for word in words]),
        "word_ends": torch.tensor(np.cumsum([len(word) for word in words])),
    }
    return columns | {name: [table] for name, table in tables.items()}


def _kept(record: Record) -> Record:
    """With what a store keeps of its regions, as it keeps it: half of the memory meanwhile."""
    regions = cast(Regions, record.regions)
    kept = {name: value for name, value in regions.tensors().items() if name in (*PER_REGION, "whole")}
    columns = {name: value.to(LAYOUT[name][1]).contiguous() for name, value in kept.items()}
    return replace(record, regions=Regions(size=regions.size, **columns))


def _placed(record: Record, at: Callable[[Path], str | Path]) -> Record:
    """A relative name of a picture is kept as seen from the store's folder, so that it holds wherever Diptych is called
    from, and when both are moved together."""
    if record.image is None or record.image.is_absolute():
        return record
    return replace(record, image=Path(os.path.normpath(at(record.image))))


def _read_index(folder: Path) -> dict[str, Any]:
    check_name(folder)
    path = folder / INDEX
    if not path.is_file():
        raise DataError(f"{folder} is not a store: it has no {INDEX}; make one with `diptych extract DATA {folder}`")
    try:
        index = parse_json(text_of(path))
        if index["format"] != FORMAT:
            detector = folder / DETECTOR if (folder / DETECTOR).is_dir() else "DETECTOR"
            raise DataError(
                f"{path} has format {index['format']!r}, and this Diptych reads {FORMAT}; make the store again in a "
                f"new folder: diptych extract DATA OUT --detector {detector} (with --features PATH where it was "
                "made of features: --detector given)"
            )
        if index["check"] != index_check(index):
            raise ValueError("not what was written")
        FeatureContract.from_json(index["contract"])
        index["shards"] = msgspec.convert(index["shards"], list[ShardEntry])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error!r}); delete the folder and extract again") from error
    return cast(dict[str, Any], index)


def splits_in(name: str) -> set[str]:
    """The names of splits that are joined in one, `cc+sbu`."""
    return set(name.split("+"))


def iterate(store: Store, split: str | None = None) -> Iterator[Record]:
    """The words of all records, of one split, or of several (`cc+sbu`), in order."""
    for index in range(len(store)) if split is None else store.split(split):
        yield store.words(index)
