"""Read Flickr8k (Hodosh et al., JAIR 2013): a file of captions, and a list of image names for each split."""

import re
from pathlib import Path, PurePath

from diptych.core import Record
from diptych.data.formats.conceptual import ADDRESSES, SPLIT
from diptych.data.formats.format import ByImage, Source, Wanted, once_split
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
from diptych.data.formats.values import JsonValue, listed_texts
from diptych.runtime.errors import DataError
from diptych.vision.image_files import ENDINGS

LISTS = {"train": "Flickr_8k.trainImages.txt", "val": "Flickr_8k.devImages.txt", "test": "Flickr_8k.testImages.txt"}
WORDS = ("caption", "captions")  # columns of Kaggle's version, which also has `image`, and perhaps `split`
IMAGE = "image"
TOKEN = "token"  # part of the original files' names
_TOKEN_LINE = re.compile(r"([^\t]+)(#\d+)(?:\t(.*))?")
_WANTED = "`NAME#NUMBER TAB caption`"


def read(wanted: Wanted, table: Source) -> list[Record]:
    """Read lines `NAME#NUMBER TAB caption`, or a table with the columns `image` and `caption` (commas or tabs).

    One record per image, in the order of its first caption. Splits come from a column `split`, else from the lists of
    image names in the same folder. Images that no list contains are counted in `wanted.skips` and left out. Raises
    DataError if no caption is left.
    """
    path, skips, head = table.path, wanted.skips, _head(table)
    named = dict[str, str | None]()
    splits, captions = {} if SPLIT in head else _listed(path.parent), ByImage[tuple[str, str]]()
    once = Once("picture")

    def take(name: str, words: str, caption_id: str, where: str) -> None:
        if PurePath(name).suffix.lower() not in ENDINGS:
            skips.add("captions of files that are not images", where)
        elif splits and name not in splits:
            skips.add("captions of images that are in no split's list", where)
        elif not words:
            skips.add("empty captions", where)
        else:
            if name not in captions:
                once.check(key_of_name(name), where)
            captions.add(name, (words, caption_id), where)

    def take_token(line: str, where: str) -> None:
        if (match := _TOKEN_LINE.fullmatch(line.strip())) is None or not (name := match[1].strip()):
            raise DataError(f"{where}: expected {_WANTED}; correct the line")
        take(name, (match[3] or "").strip(), name + match[2], where)

    def take_row(row: tuple[str, list[str]]) -> None:
        where, fields = row
        check_utf8(",".join(fields), where)
        cells = dict(zip(head, fields, strict=False))
        if not (name := cells.get(IMAGE, "").strip()) or len(fields) != len(head):
            raise DataError(f"{where}: expected {_form(head)}; correct the line")
        once_split(named, wanted, name, cells.get(SPLIT), JsonValue(cells, where))
        listed = {one: listed_texts(cells[one].strip()) for one in WORDS if one in cells}
        for words in first_texts(listed, skips, where) or [""]:
            take(name, words.strip(), "", where)

    def check_listed(name: str) -> None:
        if name not in captions:
            raise DataError(f"{path}: found no caption of {name}, which is in a split's list; download all files again")

    if head:
        for one in head:
            if one and one not in (IMAGE, SPLIT, *WORDS):
                skips.add(f"columns {one[:40]!r} (not read)", path.name)
        rows = fields_of([line.strip() for line in read_lines(path)], path.name, _between(table))
        skips.every((row for row in rows if _names(row[1]) != head), take_row, "line")
    else:
        each_line(path, skips, take_token)
    skips.every(splits, check_listed, "listed image")
    if not len(captions):
        expected = _form(head) if head else _WANTED
        raise DataError(f"{path}: found no caption of any image, expected lines of {expected}; {skips}")

    def record(name: str, texts: tuple[tuple[str, str], ...], where: str) -> Record:
        return wanted.record(name, where, split=splits.get(name) or named.get(name), **named_captions(texts))

    return captions.records(wanted, record)


def is_table(table: Source) -> bool:
    """Return True for a file of Flickr8k's captions: `token` is part of its name, or its head has Kaggle's columns."""
    if not table.path.is_file() or table.path.suffix.lower() not in (".txt", ".csv", ".tsv", f".{TOKEN}"):
        return False
    return TOKEN in table.path.name.lower().split(".") or bool(_head(table))


def _between(table: Source) -> str:
    return "\t" if "\t" in first_line(table.path)[0] else ","


def _head(table: Source) -> list[str]:
    """Return the columns of a table, in lower case, if it has images and captions, and no addresses; else nothing."""
    fields = next(fields_of([first_line(table.path)[0]], "", _between(table)), ("", []))[1]
    names = _names(fields)
    return names if IMAGE in names and {*names} & {*WORDS} and not {*names} & {*ADDRESSES} else []


def _names(fields: list[str]) -> list[str]:
    return [field.strip().lower() for field in fields]


def _form(head: list[str]) -> str:
    return f"`{','.join('NAME' if name == IMAGE else name for name in head)}`, in quotes where it has a comma"


def _listed(folder: Path) -> dict[str, str]:
    """Return image name -> split, from the lists in the folder."""
    splits: dict[str, str] = {}
    for split, name in LISTS.items():
        if (folder / name).is_file():
            for image in read_text(folder / name).split():
                if (other := splits.setdefault(image, split)) != split:
                    raise DataError(f"{folder / name}: found {image}, which is in split {other} too; download it again")
    return splits
