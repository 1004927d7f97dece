"""Read Conceptual Captions, Conceptual 12M, SBU and similar data sets.

A line has a caption, a tab and the image's URL.
"""

import re

from msgspec import Struct

from diptych.core import Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.image_folder import CAPTIONS
from diptych.data.formats.parsing import Once, each_json_line, each_line, first_line, key_of_name
from diptych.data.formats.values import JsonValue, Text, listed_texts
from diptych.runtime.errors import DataError

ADDRESS = re.compile(r"\s*https?://\S+\s*$", re.I)
ADDRESSES = ("url", "image_url", "imageurl", "image_link", "link")  # names that the column with the URL may have
SPLIT = "split"


def fits(source: Source) -> bool:
    """Return True for a `.tsv` file without a header, or with a header that names a caption and a URL column."""
    return source.path.suffix.lower() == ".tsv" and (not source.names or _columns(source) is not None)


def _columns(table: Source) -> tuple[int, int] | None:
    """Return the indices of the caption and the URL column, found by the header; None if a column is missing."""
    names = [name.lower() for name in table.names]
    at = next((at for at, name in enumerate(names) if name in ADDRESSES), None)
    others = [place for place, name in enumerate(names) if place != at and name != SPLIT]
    words = next((place for place in others if names[place] in CAPTIONS), others[0] if len(others) == 1 else None)
    return None if at is None or words is None else (words, at)


def read(wanted: Wanted, table: Source) -> list[Record]:
    """Read lines `caption TAB url`, or `url TAB caption` as in Conceptual 12M. Return one record per line.

    A header is not a record.

    The split comes from a column `split`, if there is one. Other columns, such as labels, are ignored. A key is
    `NAME/NUMBER`: the file's name without its suffix, and the line's index from 0. Nothing is downloaded. An image must
    be in the folder of images, at the path that equals its URL.
    """
    columns = _columns(table)
    head = first_line(table.path)[0] if columns is not None else None
    splits = [at for at, name in enumerate(table.names) if columns is not None and name.lower() == SPLIT][:1]

    def take(line: str, where: str) -> Record | None:
        if line.strip() == head:
            return None
        fields = line.rstrip("\r").split("\t")
        named = columns is None or len(fields) == len(table.names)
        caption, *rest = fields if columns is None or not named else [fields[at] for at in columns]
        sure = len(rest) == 1 or (len(rest) > 1 and ADDRESS.match(rest[0]))
        if not caption.strip() or not named or not sure or not rest[0].strip():
            raise DataError(f"{where}: found {len(fields)} fields, expected `caption TAB url`, none empty; correct it")
        if ADDRESS.match(caption) and not ADDRESS.match(rest[0]):
            caption, rest[0] = rest[0], caption
        listed = listed_texts(caption.strip())
        words = (listed,) if isinstance(listed, str) else tuple(one for one in listed if one.strip())
        if not words:
            wanted.skips.add("empty captions", where)
            return None
        key = f"{table.path.stem}/{int(where.rpartition(' ')[2]) - 1:06d}"
        split = wanted.splits.of_entry(fields[splits[0]] if splits else None, where)
        return wanted.record(rest[0].strip(), where, key=key, split=split, captions=words)

    return [record for record in each_line(table.path, wanted.skips, take) if record is not None]


class _CaptionLine(Struct):
    image: Text
    caption: list[Text]


def read_lines(wanted: Wanted, lines: Source) -> list[Record]:
    """Read VL-BERT's JSON lines: {"image": "val_image.zip@/00000000.jpg", "caption": ["a", "dog"], "frcnn": ...}.

    A line gives one record, whose key is the image's name. `ARCHIVE.zip@/NAME` means the file NAME in the zip.
    """
    once = Once("picture")

    def take(value: JsonValue) -> Record:
        line = value.read(_CaptionLine)
        name = wanted.name_of(line.image.replace("@/", "/", 1), value.where())
        with once.of(name, value.where()):
            if not line.caption:
                value.refuse("no words", "at least one", "caption")
            key = key_of_name(name.rpartition("/")[2])
            return wanted.record(name, value.where(), key=key, captions=(" ".join(line.caption),))

    return each_json_line(lines.path, wanted.skips, take)
