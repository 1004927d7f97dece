"""Flickr8k: captions by the name of their picture, with lists of its splits (Hodosh et al., JAIR 2013)."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePath

from diptych.core import Record
from diptych.errors import DataError
from diptych.sources.parsing import Pictures, Skips, key_of_name, picture_at, read_text
from diptych.vision.pictures import ENDINGS

LISTS = {"train": "Flickr_8k.trainImages.txt", "val": "Flickr_8k.devImages.txt", "test": "Flickr_8k.testImages.txt"}
HEAD = "image,caption"  # of the same as Kaggle has it
TOKEN = "token"  # in the names of the release's own


def read(table: Path, pictures: Path | Pictures | None = None, skips: Skips | None = None) -> list[Record]:
    """One record a picture, in the order of its first caption; `table` has lines `NAME#NUMBER TAB caption`, or
    `NAME,caption` below a line `image,caption`.

    The lists of names that Flickr8k has beside it say the splits, and pictures on no list are counted and left out;
    without any list the split is empty.
    """
    skips = Skips() if skips is None else skips
    splits = _listed(table.parent)
    captions: dict[str, list[str]] = defaultdict(list)
    first: dict[str, str] = {}
    for name, words, where in _lines(table):
        if PurePath(name).suffix.lower() not in ENDINGS:
            skips.add("captions of what is called as no picture", where)
        elif splits and name not in splits:
            skips.add("captions of pictures on no list", where)
        else:
            first.setdefault(name, where)
            captions[name].append(words)
    if missing := next((name for name in splits if name not in captions), None):
        raise DataError(f"{table}: found no caption of {missing}, which is on a list beside it; fetch both again")
    return [
        Record(key_of_name(name), splits.get(name, ""), picture_at(pictures, name, first[name]), captions=tuple(said))
        for name, said in captions.items()
    ]


def is_table(table: Path) -> bool:
    """Whether it is one of these: by its name, or by its first line."""
    if not table.is_file() or table.suffix.lower() not in (".txt", ".csv", f".{TOKEN}"):
        return False
    if TOKEN in table.name.lower().split("."):
        return True
    with table.open("rb") as file:
        return file.readline(len(HEAD) + 8).decode("utf-8-sig", "replace").strip().lower() == HEAD


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
    """Picture, caption, and where it stands."""
    lines = read_text(table).splitlines()
    of_kaggle = bool(lines) and lines[0].strip().lower() == HEAD
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (of_kaggle and number == 1):
            continue
        name, words = _of_csv(line) if of_kaggle else _of_token(line)
        where = f"{table.name} line {number}"
        if not name or not words:
            wanted = "`NAME,caption`, in quotes where it has a comma" if of_kaggle else "`NAME#NUMBER TAB caption`"
            raise DataError(f"{where}: wanted {wanted}; correct the line")
        yield name, words, where


def _of_token(line: str) -> tuple[str, str]:
    named, _, words = line.partition("\t")
    return named.partition("#")[0].strip(), words.strip()


def _of_csv(line: str) -> tuple[str, str]:
    """Empty texts for what is no line of two fields."""
    try:
        fields = next(csv.reader([line], strict=True))
    except csv.Error:
        return "", ""
    return (fields[0].strip(), fields[1].strip()) if len(fields) == 2 else ("", "")
