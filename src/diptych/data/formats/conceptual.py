"""Read Conceptual Captions, Conceptual 12M, SBU and similar data sets.

A line has a caption, a tab and the image's URL.
"""

from msgspec import Struct

from diptych.core import Record
from diptych.data.formats.columns import ADDRESS, ADDRESSES, CAPTIONS, SPLIT, columns_of, with_caption
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Once, each_json_line, each_line, first_line, key_of_name
from diptych.data.formats.values import JsonValue, Text, listed_texts
from diptych.runtime.errors import DataError

USUAL = {"url": (ADDRESSES,), "caption": (CAPTIONS,), SPLIT: ((SPLIT,),)}


def fits(source: Source) -> bool:
    """Return True for a `.tsv` file without a header, or with a header that names a caption and a URL column."""
    return source.path.suffix.lower() == ".tsv" and (not source.names or bool(_columns(source)))


def _columns(table: Source) -> dict[str, int]:
    """Return the indices of the columns `caption`, `url` and `split`, found by the header; nothing without a header."""
    columns = with_caption(columns_of(list(table.names), USUAL), len(table.names))
    return columns if {"caption", "url"} <= columns.keys() else {}


def read(wanted: Wanted, table: Source) -> list[Record]:
    """Read lines `caption TAB url`, or `url TAB caption` as in Conceptual 12M. Return one record per line.

    A header is not a record.

    The split comes from a column `split`, if there is one. Other columns, such as labels, are ignored. A key is
    `NAME/NUMBER`: the file's name without its suffix, and the line's index from 0. Nothing is downloaded. An image must
    be in the folder of images, at the path that equals its URL.
    """
    columns = _columns(table)
    head = first_line(table.path)[0] if columns else None

    def take(line: str, where: str) -> Record | None:
        if line.strip() == head:
            return None
        fields = line.rstrip("\r").split("\t")
        caption, address = _by_head(columns, fields, len(table.names)) if columns else _by_place(fields)
        if not caption.strip() or not address.strip():
            raise DataError(f"{where}: found {len(fields)} fields, expected `caption TAB url`, none empty; correct it")
        if ADDRESS.match(caption) and not ADDRESS.match(address):
            caption, address = address, caption
        listed = listed_texts(caption.strip())
        words = (listed,) if isinstance(listed, str) else tuple(one for one in listed if one.strip())
        if not words:
            wanted.skips.add("empty captions", where)
            return None
        key = f"{table.path.stem}/{int(where.rpartition(' ')[2]) - 1:06d}"
        split = wanted.splits.of_entry(fields[columns[SPLIT]] if SPLIT in columns else None, where)
        return wanted.record(address.strip(), where, key=key, split=split, captions=words)

    return [record for record in each_line(table.path, wanted.skips, take) if record is not None]


def _by_head(columns: dict[str, int], fields: list[str], count: int) -> tuple[str, str]:
    """Return the caption and the URL of a line; empty ones if it has not as many fields as the header."""
    return (fields[columns["caption"]], fields[columns["url"]]) if len(fields) == count else ("", "")


def _by_place(fields: list[str]) -> tuple[str, str]:
    """Return the two fields of a line. Further fields are left out if the second is surely the URL."""
    sure = len(fields) == 2 or (len(fields) > 2 and ADDRESS.match(fields[1]))
    return (fields[0], fields[1]) if sure else ("", "")


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
