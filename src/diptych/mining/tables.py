"""What stages leave on disk: Parquet, written whole or not at all, the same bytes for the same rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from diptych.errors import DataError
from diptych.extras import wanted
from diptych.files import parse_json, text_of, write_atomically

Row = dict[str, Any]


def digest(*parts: Any) -> str:
    """16 hex digits of what JSON makes of them: the name of a shard."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()[:16]


@cache
def schema(name: str) -> Any:
    """pages: a picture on a page; index: an address that was asked for; measured: a file; decisions: all of these."""
    with wanted("diptych mine", "mine"):
        import pyarrow as pa
    text = pa.struct([("kind", pa.string()), ("text", pa.string()), ("fails", pa.list_(pa.string())),
                      ("score", pa.float64())])  # fmt: skip
    pages = [
        ("page", pa.string()), ("address", pa.string()), ("place", pa.int32()), ("title", pa.string()),
        ("declared", pa.string()), ("language", pa.string()), ("english", pa.float64()),
        ("declared_width", pa.int32()), ("declared_height", pa.int32()), ("dominant", pa.float64()),
        ("lead", pa.float64()), ("features", pa.list_(pa.string())), ("texts", pa.list_(text)),
        ("licence", pa.string()), ("fails", pa.list_(pa.string())),
    ]  # fmt: skip
    index = [
        ("address", pa.string()), ("reason", pa.string()), ("status", pa.int32()), ("final", pa.string()),
        ("moved", pa.string()), ("hops", pa.int32()), ("media", pa.string()), ("date", pa.string()),
        ("offset", pa.int64()), ("length", pa.int64()),
    ]  # fmt: skip
    measures = [
        ("sha256", pa.string()), ("type", pa.string()), ("bytes", pa.int64()), ("width", pa.int32()),
        ("height", pa.int32()), ("frames", pa.int32()), ("one_colour", pa.bool_()), ("dhash", pa.uint64()),
        ("file_licence", pa.string()), ("realism", pa.float64()), ("nsfw", pa.float64()), ("why", pa.string()),
    ]  # fmt: skip
    found = [("reason", pa.string()), ("status", pa.int32()), ("date", pa.string()), ("blob", pa.string()),
             ("offset", pa.int64()), ("length", pa.int64())]  # fmt: skip
    fails = [("fails", pa.list_(pa.string()))]
    match name:
        case "pages":
            return pa.schema(pages)
        case "index":
            return pa.schema(index)
        case "measured":
            return pa.schema([("address", pa.string()), *measures, *fails])
        case "joined":
            return pa.schema([*pages, *found, *measures])
        case _:
            kept = [("dropped_by", pa.string()), ("score", pa.float64()), ("kept", pa.int32())]
            return pa.schema([*pages, *found[:3], *measures, *kept])


def write_rows(path: Path, rows: Sequence[Row], kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows), schema(kind))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, sink.getvalue().to_pybytes())


def read_rows(path: Path, columns: Sequence[str] | None = None) -> list[Row]:
    rows: list[Row] = read_table(path, columns).to_pylist()
    return rows


def read_table(path: Path, columns: Sequence[str] | None = None) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, columns=list(columns) if columns is not None else None, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"cannot read {path}: {error}; take it away and give the same command again") from error


def write_json(path: Path, value: Mapping[str, Any] | Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(value, sort_keys=True, ensure_ascii=True).encode())


def read_json(path: Path) -> Any:
    try:
        return parse_json(text_of(path))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}; take it away and give the same command again") from error


def lines_of(values: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(value, ensure_ascii=False, sort_keys=False)}\n" for value in values).encode()
