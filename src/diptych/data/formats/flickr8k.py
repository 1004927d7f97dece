"""Read Flickr8k (Hodosh et al., JAIR 2013): a file of captions, and a list of image names for each split."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from diptych.core import Record
from diptych.data.formats.columns import ADDRESSES, SPLIT, Table, first_texts
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import Once, each_line, first_line, key_of_name, named_captions, read_lines, read_text
from diptych.data.formats.values import JsonValue
from diptych.runtime.errors import DataError
from diptych.vision.upright import ENDINGS

LISTS = {"train": "Flickr_8k.trainImages.txt", "val": "Flickr_8k.devImages.txt", "test": "Flickr_8k.testImages.txt"}
# Columns with captions in Kaggle's version, which also has `image`, and perhaps `split`.
WORDS = ("caption", "captions")
IMAGE, NAMED = "image", ("file", "filename")  # NAMED: other names of the column `image`
TOKEN = "token"  # the original files have this word in their names
_ENDS = re.compile(r"^[^\S\t]+|[^\S\t]+$")  # white space at the ends of a line, except tabs
_TOKEN_LINE = re.compile(r"([^\t]+)(#\d+)(?:\t(.*))?")


def read(wanted: Wanted, source: Source) -> list[Record]:
    """Read lines `NAME#NUMBER TAB caption`, or a table of `image` (or `file`) and `caption`, with commas or tabs.

    One record per image, in the order of its first caption. In a table, the key is the image's name with the suffix.
    Splits come from a column `split`, else from the lists of image names in the same folder. Images that no list
    contains are counted in `wanted.skips` and left out. Raises DataError if no caption is left.
    """
    path = source.path
    if _is_kaggles(source):
        table = Table([_ENDS.sub("", line) for line in read_lines(path)], path.name, _between(path))
        if table.head:
            return _of_table(wanted, path, table)
    return _of_lines(wanted, path)


def _of_lines(wanted: Wanted, path: Path) -> list[Record]:
    taken, once = _Captions(wanted, path, "`NAME#NUMBER TAB caption`", _listed(wanted, path.parent)), Once("picture")

    def take(line: str, where: str) -> None:
        if (match := _TOKEN_LINE.fullmatch(line.strip())) is None or not (name := match[1].strip()):
            raise DataError(f"{where}: expected {taken.form}; correct the line")
        caption_id, name = name + match[2], wanted.name_of(name, where)
        if taken.has(name, words := (match[3] or "").strip(), where):
            if name not in taken.captions:
                once.check(key_of_name(name), where)
            taken.captions.add(name, (words, caption_id), where)

    each_line(path, wanted.skips, take)
    return taken.records()


def _of_table(wanted: Wanted, path: Path, table: Table) -> list[Record]:
    splits, head = wanted.splits, _columns(table.head)
    table.head = head
    form = f"`{','.join('NAME' if name == IMAGE else name for name in head)}`, in quotes where it has a comma"
    taken = _Captions(wanted, path, form, {} if SPLIT in head else _listed(wanted, path.parent), splits.named)

    def take(row: tuple[str, list[str]]) -> None:
        cells, where = table.cells(row), row[0]
        if not (name := cells.get(IMAGE, "").strip()):
            raise DataError(f"{where}: expected {form}; correct the line")
        name = wanted.name_of(name, where)
        splits.note(name, cells.get(SPLIT), JsonValue(cells, where))
        texts = {one: text.strip() if isinstance(text, str) else text for one, text in cells.items()}
        for words in first_texts(texts, WORDS, wanted.skips, where) or [""]:
            if taken.has(name, words.strip(), where):
                taken.captions.add(name, (words.strip(), ""), where)

    for name in (name for name in head if name and name not in (IMAGE, SPLIT, *WORDS)):
        wanted.skips.add(f"columns {name[:40]!r} (not read)", path.name)
    rows = (row for row in table.rows if _columns(row[1]) != head)
    wanted.skips.every(rows, take, "line")
    return taken.records(keyed=True)


@dataclass
class _Captions:
    """The captions of a file. An image in no split's list has none, if there are such lists."""

    wanted: Wanted
    path: Path
    form: str  # of a line
    listed: Mapping[str, str]  # {image: split}, from the lists of the splits
    named: Mapping[str, str] = field(default_factory=dict)  # {image: split}, from the file itself
    captions: ByImage[tuple[str, str]] = field(default_factory=ByImage[tuple[str, str]])

    def has(self, name: str, words: str, where: str) -> bool:
        """Return True for a caption of an image of the data set; count any other in `wanted.skips`."""
        if PurePath(name).suffix.lower() not in ENDINGS:
            why = "captions of files that are not images"
        elif self.listed and name not in self.listed:
            why = "captions of images that are in no split's list"
        elif not words:
            why = "empty captions"
        else:
            return True
        self.wanted.skips.add(why, where)
        return False

    def records(self, keyed: bool = False) -> list[Record]:
        """Return one record per image. `keyed`: the key is the image's name with the suffix."""

        def check_listed(name: str) -> None:
            if name not in self.captions:
                missing = f"found no caption of {name}, which is in a split's list; download all files again"
                raise DataError(f"{self.path}: {missing}")

        def record(name: str, texts: tuple[tuple[str, str], ...], where: str) -> Record:
            key, split = name if keyed else None, self.listed.get(name) or self.named.get(name)
            return self.wanted.record(name, where, key=key, split=split, **named_captions(texts))

        self.wanted.skips.every(self.listed, check_listed, "listed image")
        if not self.captions:
            expected = f"expected lines of {self.form}; {self.wanted.skips}"
            raise DataError(f"{self.path}: found no caption of any image, {expected}")
        return self.captions.records(self.wanted, record)


def is_table(table: Source) -> bool:
    """Return True for a file of Flickr8k's captions: `token` is part of its name, or its head has Kaggle's columns."""
    if not table.path.is_file() or table.path.suffix.lower() not in (".txt", ".csv", ".tsv", f".{TOKEN}"):
        return False
    return TOKEN in table.path.name.lower().split(".") or _is_kaggles(table)


def _between(path: Path) -> str:
    return "\t" if "\t" in first_line(path)[0] else ","


def _is_kaggles(table: Source) -> bool:
    """Return True if the first line names a column of images and one of captions, and none of addresses."""
    names = {*_columns([name.strip().strip('"') for name in first_line(table.path)[0].split(_between(table.path))])}
    return IMAGE in names and bool(names & {*WORDS}) and not names & {*ADDRESSES}


def _columns(names: Sequence[str]) -> list[str]:
    """Return the names in lower case, with `image` for a column in NAMED if there is no such column."""
    lower = [name.strip().lower() for name in names]
    return lower if IMAGE in lower else [IMAGE if name in NAMED else name for name in lower]


def _listed(wanted: Wanted, folder: Path) -> dict[str, str]:
    """Return image name -> split, from the lists in the folder."""
    splits: dict[str, str] = {}
    for split, name in LISTS.items():
        if (folder / name).is_file():
            for image in (wanted.name_of(one, name) for one in read_text(folder / name).split()):
                if (other := splits.setdefault(image, split)) != split:
                    raise DataError(f"{folder / name}: the list of {other} has {image} too; download both again")
    return splits
