"""Conceptual Captions, Conceptual 12M, SBU and similar sets: a line has a caption, a tab and the image's address."""

import re

from msgspec import Struct

from diptych.core import Record
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, each_json_line, each_line, key_of_name
from diptych.data.formats.values import JsonValue, Text
from diptych.runtime.errors import DataError

ADDRESS = re.compile(r"\s*https?://\S+\s*$", re.I)
_MOST = 3  # caption, address, and the labels that one release has


def read(wanted: Wanted, table: Source) -> list[Record]:
    """Read lines `caption TAB url`, or `url TAB caption` as in Conceptual 12M: one record per line.

    A key is `NAME/NUMBER`: the table's name without its ending, and the line's number from 0. The image's path is its
    address below the folder of images; nothing is downloaded.
    """

    def take(line: str, where: str) -> Record:
        caption, *rest = line.rstrip("\r").split("\t")
        if not caption.strip() or not 1 <= len(rest) < _MOST or not rest[0].strip():
            raise DataError(f"{where}: found {1 + len(rest)} fields, wanted `caption TAB url`; correct the line")
        if ADDRESS.match(caption) and not ADDRESS.match(rest[0]):
            caption, rest[0] = rest[0], caption
        key = f"{table.path.stem}/{int(where.rpartition(' ')[2]) - 1:06d}"
        return wanted.record(rest[0].strip(), where, key=key, captions=(caption.strip(),))

    return each_line(table.path, wanted.skips, take)


class _CaptionLine(Struct):
    image: Text
    caption: list[Text]


def read_lines(wanted: Wanted, lines: Source) -> list[Record]:
    """Read VL-BERT's lines {"image": "val_image.zip@/00000000.jpg", "caption": ["a", "dog"], "frcnn": ...}.

    One record per line; its key is the image's name. `ARCHIVE.zip@/NAME` is an image in a zip.
    """
    once = Once("picture")

    def take(value: JsonValue) -> Record:
        line = value.read(_CaptionLine)
        name = line.image.replace("@/", "/", 1)
        with once.of(name, value.where()):
            if not line.caption:
                value.refuse("no words", "at least one", "caption")
            key = key_of_name(name.rpartition("/")[2])
            return wanted.record(name, value.where(), key=key, captions=(" ".join(line.caption),))

    return each_json_line(lines.path, wanted.skips, take)
