"""Read Flickr8k (Hodosh et al., JAIR 2013): a file of captions, and a list of image names for each split."""

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from diptych.core import Record
from diptych.data.formats.conceptual import ADDRESSES, SPLIT
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.image_folder import fields_of, first_texts
from diptych.data.formats.parsing import (
    Once,
    check_utf8,
    each_line,
    first_line,
    key_of_name,
    named_captions,
    read_lines,
    read_text,
)
from diptych.data.formats.splits import Splits
from diptych.data.formats.values import JsonValue, listed_texts
from diptych.runtime.errors import DataError
from diptych.vision.upright import ENDINGS

LISTS = {"train": "Flickr_8k.trainImages.txt", "val": "Flickr_8k.devImages.txt", "test": "Flickr_8k.testImages.txt"}
# Columns with captions in Kaggle's version, which also has `image`, and perhaps `split`.
WORDS = ("caption", "captions")
IMAGE = "image"
TOKEN = "token"  # the original files have this word in their names
_ENDS = re.compile(r"^[^\S\t]+|[^\S\t]+$")  # white space at the ends of a line, except tabs
_TOKEN_LINE = re.compile(r"([^\t]+)(#\d+)(?:\t(.*))?")


def read(wanted: Wanted, table: Source) -> list[Record]:
    """Read lines `NAME#NUMBER TAB caption`, or a table with the columns `image` and `caption` (commas or tabs).

    One record per image, in the order of its first caption. In a table, the key is the image's name with the suffix.
    Splits come from a column `split`, else from the lists of image names in the same folder. Images that no list
    contains are counted in `wanted.skips` and left out. Raises DataError if no caption is left.
    """
    path, skips, head = table.path, wanted.skips, list[str]()
    if _is_kaggles(table):
        rows = fields_of([_ENDS.sub("", line) for line in read_lines(path)], path.name, _between(table))
        head = _names(next(rows)[1])
    taken = _Taken(wanted, head, {} if SPLIT in head else _listed(wanted, path.parent), wanted.splits)

    def check_listed(name: str) -> None:
        if name not in taken.captions:
            raise DataError(f"{path}: found no caption of {name}, which is in a split's list; download all files again")

    if head:
        for name in (name for name in head if name and name not in (IMAGE, SPLIT, *WORDS)):
            skips.add(f"columns {name[:40]!r} (not read)", path.name)
        skips.every((row for row in rows if _names(row[1]) != head), taken.row, "line")
    else:
        each_line(path, skips, taken.token)
    skips.every(taken.splits, check_listed, "listed image")
    if not len(taken.captions):
        raise DataError(f"{path}: found no caption of any image, expected lines of {taken.form}; {skips}")
    return taken.captions.records(wanted, taken.record)


@dataclass
class _Taken:
    """The captions read so far."""

    wanted: Wanted
    head: list[str]
    splits: dict[str, str]  # {image: split}, from the lists of the splits
    named: Splits  # that rows name
    captions: ByImage[tuple[str, str]] = field(default_factory=ByImage[tuple[str, str]])
    once: Once = field(default_factory=lambda: Once("picture"))

    @property
    def form(self) -> str:
        names = ",".join("NAME" if name == IMAGE else name for name in self.head)
        return f"`{names}`, in quotes where it has a comma" if names else "`NAME#NUMBER TAB caption`"

    def token(self, line: str, where: str) -> None:
        if (match := _TOKEN_LINE.fullmatch(line.strip())) is None or not (name := match[1].strip()):
            raise DataError(f"{where}: expected {self.form}; correct the line")
        self.take(self.wanted.name_of(name, where), (match[3] or "").strip(), name + match[2], where)

    def row(self, row: tuple[str, list[str]]) -> None:
        where, fields = row
        check_utf8(",".join(fields), where)
        cells = dict(zip(self.head, fields, strict=False))
        if not (name := cells.get(IMAGE, "").strip()) or len(fields) != len(self.head):
            raise DataError(f"{where}: expected {self.form}; correct the line")
        name = self.wanted.name_of(name, where)
        self.named.note(name, cells.get(SPLIT), JsonValue(cells, where))
        listed = {one: listed_texts(cells[one].strip()) for one in WORDS if one in cells}
        for words in first_texts(listed, self.wanted.skips, where) or [""]:
            self.take(name, words.strip(), "", where)

    def take(self, name: str, words: str, caption_id: str, where: str) -> None:
        skips = self.wanted.skips
        if PurePath(name).suffix.lower() not in ENDINGS:
            skips.add("captions of files that are not images", where)
        elif self.splits and name not in self.splits:
            skips.add("captions of images that are in no split's list", where)
        elif not words:
            skips.add("empty captions", where)
        else:
            if not self.head and name not in self.captions:
                self.once.check(key_of_name(name), where)
            self.captions.add(name, (words, caption_id), where)

    def record(self, name: str, texts: tuple[tuple[str, str], ...], where: str) -> Record:
        split = self.splits.get(name) or self.named.named.get(name)
        return self.wanted.record(name, where, key=name if self.head else None, split=split, **named_captions(texts))


def is_table(table: Source) -> bool:
    """Return True for a file of Flickr8k's captions: `token` is part of its name, or its head has Kaggle's columns."""
    if not table.path.is_file() or table.path.suffix.lower() not in (".txt", ".csv", ".tsv", f".{TOKEN}"):
        return False
    return TOKEN in table.path.name.lower().split(".") or _is_kaggles(table)


def _between(table: Source) -> str:
    return "\t" if "\t" in first_line(table.path)[0] else ","


def _is_kaggles(table: Source) -> bool:
    """Return True if the first line names a column of images and one of captions, and none of addresses."""
    names = {name.strip().strip('"').lower() for name in first_line(table.path)[0].split(_between(table))}
    return IMAGE in names and bool(names & {*WORDS}) and not names & {*ADDRESSES}


def _names(fields: list[str]) -> list[str]:
    return [name.strip().lower() for name in fields]


def _listed(wanted: Wanted, folder: Path) -> dict[str, str]:
    """Return image name -> split, from the lists in the folder."""
    splits: dict[str, str] = {}
    for split, name in LISTS.items():
        if (folder / name).is_file():
            for image in (wanted.name_of(one, name) for one in read_text(folder / name).split()):
                if (other := splits.setdefault(image, split)) != split:
                    raise DataError(f"{folder / name}: the list of {other} has {image} too; download both again")
    return splits
