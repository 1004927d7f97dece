"""Tables with a column of images and columns of texts: the usual names of columns, and the rows of a table.

A format of tables needs the names that its columns may have, and what it does with the cells of a row.
"""

import csv
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from diptych.data.formats.parsing import Skips, check_utf8
from diptych.data.formats.values import listed_texts

# Columns with captions; the first that is not empty is read.
CAPTIONS = ("text", "caption", "captions", "sentence", "description", "prompt")
ADDRESSES = ("url", "image_url", "imageurl", "image_link", "link")  # names that the column with the URL may have
ADDRESS = re.compile(r"\s*https?://\S+\s*$", re.I)
SPLIT = "split"
# A row of a table has at most this many lines. If a quote is not closed, only the row's first line is skipped.
MOST_LINES = 100


def columns_of(names: Sequence[str], usual: Mapping[str, Sequence[Container[str]]]) -> dict[str, int]:
    """Return what a column holds, such as "caption" -> its index, for the columns with a usual name.

    `usual`: the usual names of each column, in lower case, in groups; names of the first group are preferred.
    """
    lower = [name.strip().strip('"').lower() for name in names]
    places = {
        role: [at for group in groups for at, name in enumerate(lower) if name in group]
        for role, groups in usual.items()
    }
    return {role: at[0] for role, at in places.items() if at}


def with_caption(columns: Mapping[str, int], count: int) -> dict[str, int]:
    """Return the columns of a table of `count` columns. The only other column of one with a URL is the caption."""
    others = [at for at in range(count) if at not in columns.values()]
    alone = "url" in columns and "caption" not in columns and len(others) == 1
    return {**columns, "caption": others[0]} if alone else {**columns}


class Table:
    """A table of texts. Commas or tabs separate the fields, which may be in quotes; the first row is the head."""

    def __init__(self, lines: Sequence[str], name: str, between: str = ",") -> None:
        self.rows = _rows(lines, name, between)  # (place, fields); `name` is the file's name
        self.head = [one.strip() for one in next(self.rows, ("", [""]))[1]]

    def cells(self, row: tuple[str, list[str]]) -> dict[str, Any]:
        """Return {column: text} of a row, empty if it has not as many fields as the head.

        A caption that is written as a list is a list of texts. Raises DataError for bytes that are not UTF-8.
        """
        where, fields = row
        check_utf8(",".join(fields), where)
        if len(fields) != len(self.head):
            return {}
        cells = dict(zip(self.head, fields, strict=True))
        return {name: listed_texts(text) if name in CAPTIONS else text for name, text in cells.items()}


def _rows(lines: Sequence[str], name: str, between: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the location and the fields of each row.

    The fields of an invalid row are empty, or not as many as those of the head.
    """
    head, at = list[str](), 0
    while at < len(lines):
        where, fields, end = f"{name} line {at + 1}", list[str](), at + 1
        for end in range(at + 1, min(at + MOST_LINES, len(lines)) + 1):
            if between == "\t" and between in "".join(lines[at + 1 : end]):
                break  # a line with a tab begins the next row
            with suppress(csv.Error):
                fields = next(csv.reader([f"{line}\n" for line in lines[at:end]], delimiter=between, strict=True), [])
                break
        if between == "\t" and not fields and lines[at].strip():
            fields, end = lines[at].split(between), at + 1  # with tabs, a lone quote is part of the text
        while between == "\t" and len(fields) > len(head) > 0 and not fields[-1].strip():
            fields.pop()
        at = end if not head or len(fields) == len(head) else at + 1
        if fields or lines[at - 1].strip():
            head = head or fields
            yield where, fields


def first_texts(cells: Mapping[str, Any], usual: Sequence[str], skips: Skips, where: str) -> Any:
    """Return the texts of the first of the `usual` columns that has some, as a list; None if there is no such column.

    Rows whose other columns have different texts are counted in `skips`.
    """
    texts = {name: [one] if isinstance(one := cells[name], str) else one for name in usual if name in cells}
    filled = [name for name, listed in texts.items() if _has_text(listed)]
    read = next(iter([*filled, *texts]), "")
    for name in filled[1:]:
        if texts[name] != texts[read]:
            skips.add(f"rows with {read!r} and other texts in {name!r} (read: {read!r})", where)
    return texts.get(read)


def _has_text(listed: object) -> bool:
    return isinstance(listed, list) and any(isinstance(one, str) and one.strip() for one in listed)
