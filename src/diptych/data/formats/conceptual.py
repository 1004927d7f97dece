"""Conceptual Captions, Conceptual 12M, SBU and the like: a line with a caption, a tab and the picture's address."""

import re
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from diptych.core import Record
from diptych.data.formats.parsing import Once, Pictures, key_of_name, picture_at, read_json_lines, read_text
from diptych.data.formats.values import Text
from diptych.runtime.errors import DataError

ADDRESS = re.compile(r"\s*https?://\S+\s*$", re.I)
_MOST = 3  # caption, address, and the labels that one release has


def read(
    table: Path,
    pictures: Path | Pictures | None = None,
    split: str = "train",
    name: Callable[[int, str], str] | None = None,
) -> list[Record]:
    """One record a line `caption TAB url`, or `url TAB caption` as Conceptual 12M has it, its key the line's number
    from 0.

    Addresses are never opened. `name` says, by that number and the address, what the fetched picture is
    called inside `pictures`; the default takes the address as a path.
    """
    records = []
    for number, line in enumerate(read_text(table).split("\n")):
        if not line.strip():
            continue
        where = f"{table.name} line {number + 1}"
        caption, *rest = line.rstrip("\r").split("\t")
        if not caption.strip() or not 1 <= len(rest) < _MOST or not rest[0].strip():
            raise DataError(f"{where}: found {1 + len(rest)} fields, wanted `caption TAB url`; correct the line")
        if ADDRESS.match(caption) and not ADDRESS.match(rest[0]):
            caption, rest[0] = rest[0], caption
        address = rest[0].strip()
        picture = picture_at(pictures, name(number, address) if name else address, where)
        records.append(Record(f"{split}/{number:06d}", split, picture, captions=(caption.strip(),)))
    return records


class _CaptionLine(Struct):
    image: Text
    caption: list[Text]


def read_lines(lines: Path, pictures: Path | Pictures | None = None, split: str = "train") -> list[Record]:
    """One record a line of VL-BERT's: {"image": "val_image.zip@/00000000.jpg", "caption": ["a", "dog"], "frcnn": ...}.

    The key is the picture's name; `ARCHIVE.zip@/NAME` is a picture in a zip.
    """
    records, once = [], Once("picture")
    for value in read_json_lines(lines):
        line = value.read(_CaptionLine)
        name = line.image.replace("@/", "/", 1)
        once.check(name, value.where())
        if not line.caption:
            value.refuse("no words", "at least one", "caption")
        picture = picture_at(pictures, name, value.where())
        records.append(Record(key_of_name(name.rpartition("/")[2]), split, picture, captions=(" ".join(line.caption),)))
    return records
