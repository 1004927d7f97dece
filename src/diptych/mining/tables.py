"""What stages leave on disk: Parquet, written whole or not at all, the same bytes for the same rows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from diptych.mining.checking import faults
from diptych.runtime.errors import DataError
from diptych.runtime.extras import requires_extra
from diptych.runtime.files import bytes_of, refuse_endless, sha256_of_json, write_atomically

Row = dict[str, Any]


def digest(*parts: Any) -> str:
    """16 hex digits of what JSON makes of them: the name of a shard."""
    return sha256_of_json(parts)[:16]


@cache
def schema(name: str) -> Any:
    """pages: a picture on a page; index: an address that was asked for; measured: a file; decisions: all of these."""
    with requires_extra("diptych mine", "mine"):
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
    found = [("reason", pa.string()), ("status", pa.int32()), ("date", pa.string()), ("final", pa.string()),
             ("blob", pa.string()), ("offset", pa.int64()), ("length", pa.int64())]  # fmt: skip
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
            return pa.schema([*pages, *found[:4], *measures, *kept])


def write_rows(path: Path, rows: Sequence[Row], kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows), schema(kind))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, sink.getvalue().to_pybytes())


def read_rows(path: Path, kind: str, columns: Sequence[str] | None = None) -> list[Row]:
    rows: list[Row] = read_table(path, kind, columns).to_pylist()
    return rows


def read_table(path: Path, kind: str, columns: Sequence[str] | None = None) -> Any:
    """Raises DataError for what is no table of this kind."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = schema(kind) if columns is None else pa.schema([schema(kind).field(name) for name in columns])
    try:
        refuse_endless(path)
        table = pq.ParquetFile(path, memory_map=True).read(list(columns) if columns is not None else None)
        table.validate(full=True)
        why = next(faults(table, kind), None) if table.schema.equals(wanted) else "it has other columns"
    except (pa.ArrowException, OSError, ValueError) as error:
        why = str(error)
    if why is not None:
        raise DataError(f"cannot read {path}: {why}; take it away and give the same command again")
    return table


def check_beside(asked: Any, seen: Any, path: Path) -> None:
    """Raises DataError where what was measured is not a row for each that was asked for."""
    if asked.num_rows != seen.num_rows:
        raise DataError(
            f"{path} has {seen.num_rows} rows for {asked.num_rows} answers; take it away, with the .json beside it, "
            "and give the same command again"
        )


def write_json(path: Path, value: Mapping[str, Any] | Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _json(value))


def holds_json(path: Path, value: Mapping[str, Any]) -> bool:
    """Whether this was written there."""
    return path.is_file() and bytes_of(path) == _json(value)


def _json(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True).encode()


def lines_of(values: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(value, ensure_ascii=False, sort_keys=False)}\n" for value in values).encode()
