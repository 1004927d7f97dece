"""Read an ImageFolder of the Hugging Face hub: images, and a metadata.jsonl or metadata.csv with captions."""

import csv
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.data.formats.format import SHARES, ByImage, Source, Wanted, usual_split
from diptych.data.formats.parsing import Pictures, check_utf8, each_json_line, read_lines
from diptych.data.formats.values import JsonValue, Words, refuse

NAMES = ("metadata.jsonl", "metadata.csv")  # the first file that exists is read
CSV = ".csv"
MOST_LINES = 100  # limit of the lines of a csv row: after an unclosed quote, only the first line is skipped
CAPTIONS = ("text", "caption", "captions", "sentence", "description", "prompt")  # the first of these columns is read


def tables(path: Path) -> list[Path]:
    """Return the metadata files in the folder; without them, the metadata files in its subfolders of splits."""
    there = ([path / name] if (path / name).is_file() else sorted(path.glob(f"*/{name}")) for name in NAMES)
    return next(filter(None, there), [])


def fits(source: Source) -> bool:
    if source.path.suffix.lower() == CSV and source.path.is_file():
        return "file_name" in source.names
    return source.has("file_name", ending=".jsonl") or (source.path.is_dir() and bool(tables(source.path)))


def read(wanted: Wanted, source: Source) -> list[Record]:
    """Read one record per image; the key is the image's path in the folder.

    A subfolder such as `train` names the split.
    """
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
            name, where, key=name, split=wanted.split or _split_of(name.split("/")[0]), captions=captions
        ),
    )


def _split_of(folder: str) -> str | None:
    return split if (split := usual_split(folder)) in SHARES else None


def _rows(table: Path, take: Callable[[JsonValue], None]) -> Iterator[Callable[[], None]]:
    """Yield for each row of a csv a function that passes the row to `take`.

    For an invalid row the function raises DataError.
    """
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
        refuse(where, f"{len(fields) or 'no'} fields", f"the {len(head)} fields {', '.join(head)}")
    take(JsonValue(dict(zip(head, fields, strict=True)), where))


def _take(by_image: ByImage[str], here: Wanted, folder: Path, value: JsonValue) -> None:
    line, where = value.read(dict[str, Any]), value.where()
    name = line.get("file_name")
    captions = next((line[one] for one in CAPTIONS if one in line), None)
    captions = [captions] if isinstance(captions, str) else captions
    if not isinstance(name, str) or not name.strip():
        value.refuse("a line without `file_name`", "the image's name in it")
    if not isinstance(captions, list) or not all(isinstance(one, str) for one in captions):
        value.refuse("no caption", f"a text, or a list of texts, under one of {', '.join(CAPTIONS)}")
    for caption in JsonValue(captions, where).read(list[Words]):
        if caption.strip():
            by_image.add((folder / name).as_posix(), caption, where)
        else:
            here.skips.add("empty captions", where)
