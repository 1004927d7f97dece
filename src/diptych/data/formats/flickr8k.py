"""Read Flickr8k (Hodosh et al., JAIR 2013): a file of captions, and a list of image names for each split."""

import csv
import re
from pathlib import Path, PurePath

from diptych.core import Record
from diptych.data.formats.format import ByImage, Source, Wanted
from diptych.data.formats.parsing import Once, each_line, first_line, key_of_name, named_captions, read_text
from diptych.runtime.errors import DataError
from diptych.vision.image_files import ENDINGS

LISTS = {"train": "Flickr_8k.trainImages.txt", "val": "Flickr_8k.devImages.txt", "test": "Flickr_8k.testImages.txt"}
HEAD = ["image", "caption"]  # header of Kaggle's version; commas or tabs
TOKEN = "token"  # part of the original files' names
_TOKEN_LINE = re.compile(r"([^\t]+)(#\d+)(?:\t(.*))?")
_WANTED = {True: "`NAME,caption`, in quotes where it has a comma", False: "`NAME#NUMBER TAB caption`"}


def read(wanted: Wanted, table: Source) -> list[Record]:
    """Read lines `NAME#NUMBER TAB caption`, or Kaggle's lines `NAME,caption` with a header (commas or tabs).

    One record per image, in the order of its first caption. Splits come from the lists of image names in the same
    folder. Images that no list contains are counted in `wanted.skips` and left out. Raises DataError if no caption is
    left.
    """
    path, skips, once = table.path, wanted.skips, Once("picture")
    splits, captions, from_kaggle = _listed(path.parent), ByImage[tuple[str, str]](), _is_kaggles(table)
    between = "\t" if "\t" in (head := first_line(path)[0]) else ","

    def take(line: str, where: str) -> None:
        if from_kaggle and line.strip() == head:
            return
        name, words, caption_id = _of_csv(line.strip(), between) if from_kaggle else _of_token(line.strip())
        if not name or words is None:
            raise DataError(f"{where}: expected {_WANTED[from_kaggle]}; correct the line")
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

    def check_listed(name: str) -> None:
        if name not in captions:
            raise DataError(f"{path}: found no caption of {name}, which is in a split's list; download all files again")

    each_line(path, skips, take)
    skips.every(splits, check_listed, "listed image")
    if not len(captions):
        raise DataError(f"{path}: found no caption of any image, expected lines of {_WANTED[from_kaggle]}; {skips}")
    return captions.records(
        wanted,
        lambda name, texts, where: wanted.record(name, where, split=splits.get(name), **named_captions(texts)),
    )


def is_table(table: Source) -> bool:
    """Return True for a file of Flickr8k's captions: `token` is part of its name, or it has Kaggle's header."""
    if not table.path.is_file() or table.path.suffix.lower() not in (".txt", ".csv", ".tsv", f".{TOKEN}"):
        return False
    return TOKEN in table.path.name.lower().split(".") or _is_kaggles(table)


def _is_kaggles(table: Source) -> bool:
    return [name.lower() for name in table.names] == HEAD


def _listed(folder: Path) -> dict[str, str]:
    """Return image name -> split, from the lists in the folder."""
    splits: dict[str, str] = {}
    for split, name in LISTS.items():
        if (folder / name).is_file():
            for image in read_text(folder / name).split():
                if (other := splits.setdefault(image, split)) != split:
                    raise DataError(f"{folder / name}: found {image}, which is in split {other} too; download it again")
    return splits


def _of_token(line: str) -> tuple[str, str | None, str]:
    """Return the image's name, the caption and the caption's id, which is `NAME#NUMBER`."""
    match = _TOKEN_LINE.fullmatch(line)
    return (match[1].strip(), (match[3] or "").strip(), match[1].strip() + match[2]) if match else ("", None, "")


def _of_csv(line: str, between: str) -> tuple[str, str | None, str]:
    """Return the image's name, the caption and an empty id.

    The caption is None unless the line has exactly two fields.
    """
    try:
        fields = next(csv.reader([line], delimiter=between, strict=True))
    except csv.Error:
        fields = line.split("\t") if between == "\t" else [""]  # quotes between tabs are part of the caption
    return fields[0].strip(), fields[1].strip() if len(fields) == 2 else None, ""
