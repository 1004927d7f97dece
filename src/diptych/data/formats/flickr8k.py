"""Flickr8k: captions by the name of their picture, with lists of its splits (Hodosh et al., JAIR 2013)."""

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePath

from diptych.core import Record
from diptych.data.formats.parsing import Once, Pictures, Skips, first_line, key_of_name, picture_at, read_text
from diptych.runtime.errors import DataError
from diptych.vision.pictures import ENDINGS

LISTS = {"train": "Flickr_8k.trainImages.txt", "val": "Flickr_8k.devImages.txt", "test": "Flickr_8k.testImages.txt"}
HEAD = "image,caption"  # the first line of the same as Kaggle has it
TOKEN = "token"  # in the names of the release's own
_TOKEN_LINE = re.compile(r"([^\t]+)#\d+(?:\t(.*))?")
_WANTED = {True: "`NAME,caption`, in quotes where it has a comma", False: "`NAME#NUMBER TAB caption`"}


def read(table: Path, pictures: Path | Pictures | None = None, skips: Skips | None = None) -> list[Record]:
    """One record a picture, in the order of its first caption; `table` has lines `NAME#NUMBER TAB caption`, or
    `NAME,caption` below a line `image,caption`.

    The lists of names that Flickr8k has beside it say the splits, and pictures on no list are counted and left out;
    without any list the split is empty. Raises DataError where no caption is left.
    """
    skips, once = Skips() if skips is None else skips, Once("picture")
    splits = _listed(table.parent)
    captions: dict[str, list[str]] = defaultdict(list)
    first: dict[str, str] = {}
    for name, words, where in _lines(table):
        if PurePath(name).suffix.lower() not in ENDINGS:
            skips.add("captions of what is called as no picture", where)
        elif splits and name not in splits:
            skips.add("captions of pictures on no list", where)
        elif not words:
            skips.add("empty captions", where)
        else:
            if name not in first:
                once.check(key_of_name(name), where)
                first[name] = where
            captions[name].append(words)
    if missing := next((name for name in splits if name not in captions), None):
        raise DataError(f"{table}: found no caption of {missing}, which is on a list beside it; fetch both again")
    if not captions:
        raise DataError(f"{table}: found no caption of any picture, wanted lines of {_WANTED[_is_kaggles(table)]}")
    return [
        Record(key_of_name(name), splits.get(name, ""), picture_at(pictures, name, first[name]), captions=tuple(said))
        for name, said in captions.items()
    ]


def is_table(table: Path) -> bool:
    """Whether it is one of these: by its name, or by its first line."""
    if not table.is_file() or table.suffix.lower() not in (".txt", ".csv", f".{TOKEN}"):
        return False
    return TOKEN in table.name.lower().split(".") or _is_kaggles(table)


def _is_kaggles(table: Path) -> bool:
    return first_line(table)[0].lower() == HEAD


def _listed(folder: Path) -> dict[str, str]:
    """The split of each picture that a list names."""
    splits: dict[str, str] = {}
    for split, name in LISTS.items():
        if (folder / name).is_file():
            for picture in read_text(folder / name).split():
                if (other := splits.setdefault(picture, split)) != split:
                    raise DataError(f"{folder / name}: found {picture}, which is in {other} too; fetch it again")
    return splits


def _lines(table: Path) -> Iterator[tuple[str, str, str]]:
    """Picture, caption, which may be empty, and where it stands."""
    of_kaggle = _is_kaggles(table)
    lines = enumerate(map(str.strip, read_text(table).split("\n")), start=1)
    for number, line in lines:
        if not line or (of_kaggle and line.lower() == HEAD):
            continue
        name, words = _of_csv(line) if of_kaggle else _of_token(line)
        where = f"{table.name} line {number}"
        if not name or words is None:
            raise DataError(f"{where}: wanted {_WANTED[of_kaggle]}; correct the line")
        yield name, words, where


def _of_token(line: str) -> tuple[str, str | None]:
    found = _TOKEN_LINE.fullmatch(line)
    return (found[1].strip(), (found[2] or "").strip()) if found else ("", None)


def _of_csv(line: str) -> tuple[str, str | None]:
    """No caption in what is no line of two fields."""
    try:
        fields = next(csv.reader([line], strict=True))
    except csv.Error:
        return "", None
    return fields[0].strip(), fields[1].strip() if len(fields) == 2 else None
