"""All that is known of addresses, in one file that workers map into memory and look addresses up in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.mining.layout import RunLayout
from diptych.mining.tables import check_beside, read_table, schema
from diptych.runtime.errors import DataError
from diptych.runtime.files import sha256_of

NAME = "found.arrow"
ROWS_AT_ONCE = 65_536


def key_of(text: str) -> int:
    """64 bits of an address, a page, a text or a host."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())


def gather(layout: RunLayout, shards: Sequence[tuple[str, str]]) -> str:
    """Writes the file from pairs of an index and what was measured of it; of two answers the later counts."""
    import pyarrow as pa

    parts = []
    for index, measured in shards:
        asked = read_table(layout.table("index", index), "index")
        seen = read_table(layout.table("measured", measured), "measured")
        check_beside(asked, seen, layout.table("measured", measured))
        parts.append(_beside(asked, seen, index))
    table = pa.concat_tables([table_schema().empty_table(), *parts])
    keys = np.fromiter((key_of(one) for one in table["address"].to_pylist()), np.uint64, table.num_rows)
    order = np.argsort(keys, kind="stable")
    last = np.append(keys[order][1:] != keys[order][:-1], True) if len(order) else np.zeros(0, bool)
    order = order[last]
    table = table.take(pa.array(order)).append_column("key", pa.array(keys[order]))
    table = table.sort_by("key").combine_chunks()
    path = layout.work(NAME)
    beside = path.with_suffix(".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(beside), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS_AT_ONCE)
    beside.replace(path)
    return digest_of(path)


def table_schema() -> Any:
    """Of the file, but for the keys."""
    return _beside(schema("index").empty_table(), schema("measured").empty_table(), "").schema


def digest_of(path: Path) -> str:
    return sha256_of(path)[:16]


def _beside(asked: Any, seen: Any, index: str) -> Any:
    """Rows of both tables, which are in one order."""
    import pyarrow as pa

    asked = asked.append_column("blob", pa.array([index] * asked.num_rows, pa.string()))
    for field in schema("measured"):
        if field.name != "address":
            asked = asked.append_column(field, seen[field.name])
    return asked


@dataclass(frozen=True)
class AddressTable:
    """The file, opened. An address leads to its last answer, through redirects to other hosts."""

    keys: NDArray[np.uint64]
    table: Any

    @classmethod
    @cache
    def open(cls, path: Path, digest: str) -> AddressTable:
        """`digest` is the file's, so that another file of this name is opened anew."""
        assert digest
        import pyarrow as pa

        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        keys = table["key"].to_numpy() if table.num_rows else np.zeros(0, np.uint64)
        return cls(np.asarray(keys, np.uint64), table)

    @classmethod
    @cache
    def of_others(cls, path: Path, digest: str) -> AddressTable:
        """As `open`, where this run did not write it. Raises DataError."""
        import pyarrow as pa

        try:
            found = cls.open(path, digest)
            found.table.validate(full=True)
            if not found.table.schema.remove(found.table.schema.get_field_index("key")).equals(table_schema()):
                raise ValueError("it has other columns")
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} cannot be read ({error}); `diptych mine run` writes it again") from error
        return found

    def rows(self, wanted: Sequence[str], most_moves: int) -> list[dict[str, Any] | None]:
        """What is known of each address, or None; a chain of more moves than that has a fetch's reason for it."""
        numbers = [self._number(one) for one in wanted]
        present = sorted({number for number in numbers if number is not None})
        read = dict(zip(present, self.table.take(present).to_pylist(), strict=True)) if present else {}
        return [self._followed(read[number], most_moves) if number is not None else None for number in numbers]

    def _number(self, address: str) -> int | None:
        key = np.uint64(key_of(address))
        at = int(np.searchsorted(self.keys, key))
        return at if at < len(self.keys) and self.keys[at] == key else None

    def _followed(self, row: dict[str, Any], most: int) -> dict[str, Any]:
        seen, moves = {row["address"]}, 0
        while row["moved"]:
            moves += 1
            if row["moved"] in seen:
                return row | {"moved": "", "reason": "redirects in a circle"}
            seen.add(row["moved"])
            number = self._number(row["moved"])
            if number is None or moves > most:
                reason = "too many redirects" if moves > most else "redirect not followed"
                return row | {"moved": "", "final": row["moved"], "reason": reason}
            row = self.table.slice(number, 1).to_pylist()[0]
        return row
