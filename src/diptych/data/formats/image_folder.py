"""Read an ImageFolder of the Hugging Face hub: images, and a metadata.jsonl or metadata.csv with captions."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from diptych.core import Record
from diptych.data.formats.columns import CAPTIONS, Table, first_texts
from diptych.data.formats.format import ByImage, Source, Wanted, files_of, note_unread
from diptych.data.formats.parsing import Pictures, each_json_line, read_lines
from diptych.data.formats.splits import Splits
from diptych.data.formats.values import JsonValue, Words, refuse

NAMES = ("metadata.jsonl", "metadata.csv")  # the tables of a folder; if there are both, both are read
CSV = ".csv"
UNREAD = ("question", "questions", "answer", "answers", "objects")  # columns of tasks other than captioning


def tables(path: Path) -> list[Path]:
    """Return the metadata files in the folder, and those in its direct subfolders, such as folders of splits."""
    inner = sorted(one for name in NAMES for one in path.glob(f"*/{name}") if not one.parent.name.startswith("."))
    return [one for one in (*(path / name for name in NAMES), *inner) if one.is_file()]


def fits(source: Source) -> bool:
    if source.path.suffix.lower() == CSV and source.path.is_file():
        return "file_name" in source.names
    return source.has("file_name", ending=".jsonl") or (source.path.is_dir() and bool(tables(source.path)))


def read(wanted: Wanted, source: Source) -> list[Record]:
    """Read one record per image; the key is the image's path in the folder.

    The split comes from a column `split`, or else from a subfolder such as `train`. Files of the folder that are not
    read, and images without a row, are counted in `wanted.skips`.
    """
    whole = source.path.is_dir()
    root = source.path if whole else source.path.parent
    pictures = Pictures((root,), wanted=False) if isinstance(wanted.pictures, Pictures) else root
    here = replace(wanted, pictures=pictures) if whole else wanted
    rows, listed = _Rows(here, here.splits), tables(root) if whole else [source.path]
    for path in listed:
        take = partial(rows.take, path, path.parent.relative_to(root))
        if path.suffix.lower() == CSV:
            table = Table(read_lines(path), path.name)
            here.skips.every(table.rows, partial(_row, table, take), "row")
        else:
            each_json_line(path, here.skips, take)
    records = rows.captions.records(here, rows.record)
    if whole:
        taken = {*listed, *(root / name for name in rows.named), *files_of(records)}
        note_unread(here.skips, root, taken, "images without a row in a table (not read)")
    return records


def _row(table: Table, take: Callable[[JsonValue], None], row: tuple[str, list[str]]) -> None:
    (where, fields), cells = row, table.cells(row)
    if not cells:
        refuse(where, f"{len(fields) or 'no'} fields", f"the {len(table.head)} fields {', '.join(table.head)}")
    take(JsonValue(cells, where))


class _Split(Struct):
    split: Words | None = None


@dataclass
class _Rows:
    """The rows of all tables."""

    here: Wanted
    splits: Splits
    # The captions of each image. Each caption has the path of the table that contains it.
    captions: ByImage[tuple[str, Path]] = field(default_factory=ByImage[tuple[str, Path]])
    named: set[str] = field(default_factory=set)  # names of the images that have a row

    def take(self, table: Path, folder: Path, value: JsonValue) -> None:
        line, where, skips = value.read(dict[str, Any]), value.where(), self.here.skips
        given, captions = line.get("file_name"), first_texts(line, CAPTIONS, skips, where)
        if not isinstance(given, str) or not given.strip():
            value.refuse("a line without `file_name`", "the image's name as `file_name`")
        self.named.add(written := f"{folder}/{given}" if folder.parts else given)
        name = self.here.name_of(written, where)
        if not isinstance(captions, list) or not all(isinstance(one, str) for one in captions):
            value.refuse("no caption", f"a text, or a list of texts, under one of {', '.join(CAPTIONS)}")
        for column in filter(line.get, UNREAD):
            skips.add(f"rows with {column!r} (only captions are read)", where)
        words = JsonValue(captions, where).read(list[Words])
        self.splits.note(name, value.read(_Split).split, value)
        for caption in words or [""]:
            if caption.strip():
                self.captions.add(name, (caption, table), where)
            else:
                skips.add("empty captions", where)

    def record(self, name: str, given: tuple[tuple[str, Path], ...], where: str) -> Record:
        first = dict[str, Path]()
        captions = tuple(text for text, table in given if first.setdefault(text, table) == table)
        if len(captions) < len(given):
            self.here.skips.add("captions that are in two tables (kept once)", where, len(given) - len(captions))
        return self.here.record(name, where, key=name, split=self.splits.of_folder(name, where), captions=captions)
