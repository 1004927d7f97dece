"""Read and write the tables of the stages, as Parquet.

A file is written completely or not at all. Equal rows give equal bytes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from diptych.runtime.extras import requires_extra
from diptych.runtime.files import bytes_of, refuse_endless, sha256_of_json, write_atomically
from diptych_mine.checking import faults
from diptych_mine.layout import RunLayout, damaged

Row = dict[str, Any]


def digest(*parts: Any) -> str:
    """Return the name of a shard: the first 16 hex digits of the SHA-256 of `parts` as JSON."""
    return sha256_of_json(parts)[:16]


_ANSWER = "reason:text status:int date:text final:text"
_BODY = "offset:long length:long"
_MEASURES = (
    "sha256:text type:text bytes:long width:int height:int frames:int one_colour:bool phash:hash file_licence:text "
    "realism:real nsfw:real why:text"
)
_PAGES = (
    "page:text address:text place:int title:text declared:text language:text english:real declared_width:int "
    "declared_height:int dominant:real lead:real features:names texts:texts licence:text fails:names"
)
# Kind of table -> its columns with their types. A row of `pages` is an image on a page, a row of `index` a requested
# URL, a row of `measured` an image file. A row of `joined` or `decisions` is an image on a page, with columns of all
# three.
COLUMNS = {
    "pages": _PAGES,
    "index": f"address:text reason:text status:int final:text moved:text hops:int media:text date:text {_BODY}",
    "measured": f"address:text {_MEASURES} fails:names",
    "joined": f"{_PAGES} {_ANSWER} blob:text {_BODY} {_MEASURES}",
    "decisions": f"{_PAGES} {_ANSWER} {_MEASURES} dropped_by:text score:real kept:int",
}


@cache
def schema(name: str) -> Any:
    """Return the Arrow schema of a kind of table, such as `pages`."""
    with requires_extra("diptych mine", "mine"):
        import pyarrow as pa
    names = pa.list_(pa.string())
    text = pa.struct([("kind", pa.string()), ("text", pa.string()), ("fails", names), ("score", pa.float64())])
    types = {
        "text": pa.string(), "int": pa.int32(), "long": pa.int64(), "real": pa.float64(), "bool": pa.bool_(),
        "hash": pa.binary(32), "names": names, "texts": pa.list_(text),
    }  # fmt: skip
    columns = (column.split(":") for column in COLUMNS[name].split())
    return pa.schema([(column, types[kind]) for column, kind in columns])


def write_rows(path: Path, rows: Sequence[Row], kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows), schema(kind))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, sink.getvalue().to_pybytes())


def write_shard(layout: RunLayout, stage: str, name: str, rows: Sequence[Row], counts: Row) -> Row:
    """Write the table of a shard, then its counts, and return the counts.

    The file of counts marks the shard as complete.
    """
    write_rows(layout.table(stage, name), rows, stage)
    write_json(layout.counts(stage, name), counts)
    return counts


def read_rows(path: Path, kind: str, columns: Sequence[str] | None = None) -> list[Row]:
    rows: list[Row] = read_table(path, kind, columns).to_pylist()
    return rows


def read_table(path: Path, kind: str, columns: Sequence[str] | None = None) -> Any:
    """Read a table, or some of its columns. Raises DataError if the file is damaged, or is another kind of table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = schema(kind) if columns is None else pa.schema([schema(kind).field(name) for name in columns])
    try:
        refuse_endless(path)
        table = pq.ParquetFile(path, memory_map=True).read(list(columns) if columns is not None else None)
        table.validate(full=True)
        why = (
            next(faults(table, kind), None) if table.schema.equals(wanted) else "it does not have the expected columns"
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        why = str(error)
    if why is not None:
        raise damaged(path, why)
    return table


def check_same_rows(index: Any, measured: Any, path: Path) -> None:
    """Raise DataError unless `measured` (the table at `path`) has as many rows as `index`."""
    if index.num_rows != measured.num_rows:
        why = f"it has {measured.num_rows} rows, but the table `index` has {index.num_rows}"
        raise damaged(path, why, "it, with the .json next to it,")


def write_json(path: Path, value: Mapping[str, Any] | Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _json(value))


def holds_json(path: Path, value: Mapping[str, Any]) -> bool:
    """Return True if the file has exactly the bytes that `write_json` would write for this value."""
    return path.is_file() and bytes_of(path) == _json(value)


def _json(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True).encode()


def lines_of(values: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the values as JSON lines, in UTF-8."""
    return "".join(f"{json.dumps(value, ensure_ascii=False, sort_keys=False)}\n" for value in values).encode()
