"""The hub's ImageFolder: images next to a metadata.jsonl or .csv, whose rows have a `file_name` and a caption."""

import csv
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import Pictures, check_utf8, each_json_line, read_lines
from diptych.data.formats.values import JsonValue, Words, refuse

NAMES = ("metadata.jsonl", "metadata.csv")  # the first that exists is read
CSV = ".csv"
MOST_LINES = 100  # most lines of a csv row: if its quotes do not end, only the first line is lost
CAPTIONS = ("text", "caption", "captions", "sentence", "description", "prompt")  # the first of them that a line has
_SPLITS = {"validation": "val", "valid": "val", "dev": "val", "val": "val", "test": "test", "train": "train"}


def tables(path: Path) -> list[Path]:
    """Return the tables of a folder: its own, or those of its splits' folders."""
    there = ([path / name] if (path / name).is_file() else sorted(path.glob(f"*/{name}")) for name in NAMES)
    return next(filter(None, there), [])


def fits(source: Source) -> bool:
    if source.path.suffix.lower() == CSV and source.path.is_file():
        return "file_name" in source.names
    return source.has("file_name", ending=".jsonl") or (source.path.is_dir() and bool(tables(source.path)))


def read(wanted: Wanted, source: Source) -> list[Record]:
    """Read one record per image; its key is its path in the folder. Folders such as `train` name the split."""
    root, by_image = source.path if source.path.is_dir() else source.path.parent, ByImage[str]()
    pictures = Pictures((root,), wanted=False) if isinstance(wanted.pictures, Pictures) else root
    here = Wanted(pictures if source.path.is_dir() else wanted.pictures, wanted.split, wanted.seed, wanted.skips)
    for table in tables(root) if source.path.is_dir() else [source.path]:
        take = partial(_take, by_image, here, table.parent.relative_to(root))
        if table.suffix.lower() == CSV:
            here.skips.every(_rows(table, take), lambda row: row(), "row")
        else:
            each_json_line(table, here.skips, take)
    return by_image.records(
        here,
        lambda name, captions, where: here.record(
            name, where, key=name, split=wanted.split or _SPLITS.get(name.split("/")[0]), captions=captions
        ),
    )


def _rows(table: Path, take: Callable[[JsonValue], None]) -> Iterator[Callable[[], None]]:
    """Yield for each row of a csv a function that returns the row by columns, or raises DataError."""
    lines = read_lines(table)
    head, at = [name.strip() for name in next(csv.reader(lines[:1]), [])], 1
    while at < len(lines):
        where, fields, end = f"{table.name} line {at + 1}", list[str](), at + 1
        for end in range(at + 1, min(at + MOST_LINES, len(lines)) + 1):
            with suppress(csv.Error):
                fields = next(csv.reader([f"{line}\n" for line in lines[at:end]], strict=True), [])
                break
        at = end if len(fields) == len(head) else at + 1
        if fields or lines[at - 1].strip():
            yield partial(_row, take, head, fields, where)


def _row(take: Callable[[JsonValue], None], head: list[str], fields: list[str], where: str) -> None:
    check_utf8(",".join(fields), where)
    if len(fields) != len(head):
        refuse(where, f"{len(fields) or 'no'} fields", f"{len(head)}: {', '.join(head)}")
    take(JsonValue(dict(zip(head, fields, strict=True)), where))


def _take(by_image: ByImage[str], here: Wanted, folder: Path, value: JsonValue) -> None:
    line, where = value.read(dict[str, Any]), value.where()
    name = line.get("file_name")
    captions = next((line[one] for one in CAPTIONS if one in line), None)
    captions = [captions] if isinstance(captions, str) else captions
    if not isinstance(name, str) or not name.strip():
        value.refuse("a line without it", "one with `file_name`")
    if not isinstance(captions, list) or not all(isinstance(one, str) for one in captions):
        value.refuse("no caption", f"a text, or a list of texts, under one of {', '.join(CAPTIONS)}")
    for caption in JsonValue(captions, where).read(list[Words]):
        if caption.strip():
            by_image.add((folder / name).as_posix(), caption, where)
        else:
            here.skips.add("empty captions", where)
