"""Read an ImageFolder of the Hugging Face hub: images, and a metadata.jsonl or metadata.csv with captions."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from diptych.core import Record
from diptych.data.formats.format import ByImage, Source, Wanted, files_of, note_unread
from diptych.data.formats.parsing import Pictures, Skips, check_utf8, each_json_line, read_lines
from diptych.data.formats.splits import Splits
from diptych.data.formats.values import JsonValue, Words, listed_texts, refuse

NAMES = ("metadata.jsonl", "metadata.csv")  # the tables of a folder; if there are both, both are read
CSV = ".csv"
# A row of a csv file has at most this many lines. If a quote is not closed, only the row's first line is skipped.
MOST_LINES = 100
# Columns with captions; the first that is not empty is read.
CAPTIONS = ("text", "caption", "captions", "sentence", "description", "prompt")
UNREAD = ("question", "questions", "answer", "answers", "objects")  # columns of tasks other than captioning


def tables(path: Path) -> list[Path]:
    """Return the metadata files in the folder, and those in its direct subfolders, such as folders of splits."""
    inner = sorted(one for name in NAMES for one in path.glob(f"*/{name}") if not one.parent.name.startswith("."))
    return [one for one in (*(path / name for name in NAMES), *inner) if one.is_file()]


def fits(source: Source) -> bool:
    if source.path.suffix.lower() == CSV and source.path.is_file():
        return "file_name" in source.names
    return source.has("file_name", ending=".jsonl") or (source.path.is_dir() and bool(tables(source.path)))


@dataclass
class _Read:
    """Data collected from the rows of all tables."""

    here: Wanted
    splits: Splits
    # The captions of each image. Each caption has the path of the table that contains it.
    captions: ByImage[tuple[str, Path]] = field(default_factory=ByImage[tuple[str, Path]])
    named: set[str] = field(default_factory=set)  # names of the images that have a row


def read(wanted: Wanted, source: Source) -> list[Record]:
    """Read one record per image; the key is the image's path in the folder.

    The split comes from a column `split`, or else from a subfolder such as `train`. Files of the folder that are not
    read, and images without a row, are counted in `wanted.skips`.
    """
    whole = source.path.is_dir()
    root = source.path if whole else source.path.parent
    pictures = Pictures((root,), wanted=False) if isinstance(wanted.pictures, Pictures) else root
    here = replace(wanted, pictures=pictures) if whole else wanted
    rows, listed = _Read(here, here.splits), tables(root) if whole else [source.path]
    for table in listed:
        take = partial(_take, rows, table, table.parent.relative_to(root))
        if table.suffix.lower() == CSV:
            rows_of = fields_of(read_lines(table), table.name)
            head = [name.strip() for name in next(rows_of, ("", [""]))[1]]
            here.skips.every(rows_of, partial(_row, take, head), "row")
        else:
            each_json_line(table, here.skips, take)
    records = rows.captions.records(here, partial(_record, rows))
    if whole:
        taken = {*listed, *(root / name for name in rows.named), *files_of(records)}
        note_unread(here.skips, root, taken, "images without a row in a table (not read)")
    return records


def _record(rows: _Read, name: str, given: tuple[tuple[str, Path], ...], where: str) -> Record:
    here, first = rows.here, dict[str, Path]()
    captions = tuple(text for text, table in given if first.setdefault(text, table) == table)
    if len(captions) < len(given):
        here.skips.add("captions that are in two tables (kept once)", where, len(given) - len(captions))
    return here.record(name, where, key=name, split=rows.splits.of_folder(name, where), captions=captions)


def fields_of(lines: Sequence[str], name: str, between: str = ",") -> Iterator[tuple[str, list[str]]]:
    """Yield the location and the fields of each row of a table, its head first. `name` is the file's name.

    The fields of an invalid row are empty, or not as many as those of the head.
    """
    head, at = list[str](), 0
    while at < len(lines):
        where, fields, end = f"{name} line {at + 1}", list[str](), at + 1
        for end in range(at + 1, min(at + MOST_LINES, len(lines)) + 1):
            if between == "\t" and between in "".join(lines[at + 1 : end]):
                break  # a line with a tab begins the next row
            with suppress(csv.Error):
                fields = next(csv.reader([f"{line}\n" for line in lines[at:end]], delimiter=between, strict=True), [])
                break
        if between == "\t" and not fields and lines[at].strip():
            fields, end = lines[at].split(between), at + 1  # with tabs, a lone quote is part of the text
        while between == "\t" and len(fields) > len(head) > 0 and not fields[-1].strip():
            fields.pop()
        at = end if not head or len(fields) == len(head) else at + 1
        if fields or lines[at - 1].strip():
            head = head or fields
            yield where, fields


def _row(take: Callable[[JsonValue], None], head: list[str], row: tuple[str, list[str]]) -> None:
    where, fields = row
    check_utf8(",".join(fields), where)
    if len(fields) != len(head):
        refuse(where, f"{len(fields) or 'no'} fields", f"the {len(head)} fields {', '.join(head)}")
    cells: dict[str, Any] = dict(zip(head, fields, strict=True))
    take(JsonValue(cells | {name: listed_texts(cells[name]) for name in CAPTIONS if name in cells}, where))


def first_texts(columns: dict[str, Any], skips: Skips, where: str) -> Any:
    """Return the texts of the first column that has some, as a list.

    Rows whose other columns have different texts are counted in `skips`.
    """
    texts = {name: [one] if isinstance(one, str) else one for name, one in columns.items()}
    filled = [name for name, listed in texts.items() if _has_text(listed)]
    read = next(iter([*filled, *texts]), "")
    for name in filled[1:]:
        if texts[name] != texts[read]:
            skips.add(f"rows with {read!r} and other texts in {name!r} (read: {read!r})", where)
    return texts.get(read)


def _has_text(listed: object) -> bool:
    return isinstance(listed, list) and any(isinstance(one, str) and one.strip() for one in listed)


class _Split(Struct):
    split: Words | None = None


def _take(rows: _Read, table: Path, folder: Path, value: JsonValue) -> None:
    line, where, skips = value.read(dict[str, Any]), value.where(), rows.here.skips
    given = line.get("file_name")
    captions = first_texts({name: line[name] for name in CAPTIONS if name in line}, skips, where)
    if not isinstance(given, str) or not given.strip():
        value.refuse("a line without `file_name`", "the image's name as `file_name`")
    rows.named.add(written := f"{folder}/{given}" if folder.parts else given)
    name = rows.here.name_of(written, where)
    if not isinstance(captions, list) or not all(isinstance(one, str) for one in captions):
        value.refuse("no caption", f"a text, or a list of texts, under one of {', '.join(CAPTIONS)}")
    for column in UNREAD:
        if line.get(column):
            skips.add(f"rows with {column!r} (only captions are read)", where)
    words, split = JsonValue(captions, where).read(list[Words]), value.read(_Split).split
    rows.splits.note(name, split, value)
    for caption in words or [""]:
        if caption.strip():
            rows.captions.add(name, (caption, table), where)
        else:
            skips.add("empty captions", where)
