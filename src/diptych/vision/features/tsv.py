"""Tables with one line per image and arrays in base64: six fields (bottom-up attention) or ten (LXMERT).

    BUTD    image_id image_w image_h num_boxes boxes features
    LXMERT  img_id img_h img_w objects_id objects_conf attrs_id attrs_conf num_boxes boxes features

The file is scanned once for the offsets of its lines. Lines are read when they are needed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from diptych.runtime.errors import DataError, explained
from diptych.vision.features import raw
from diptych.vision.features.raw import MOST_BYTES, Listing, Raw, Unit, check_size, numbered, of_base64, refuse

BUTD = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
LXMERT = ("img_id", "img_h", "img_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf", "num_boxes", "boxes",
          "features")  # fmt: skip
PART = re.compile(r"\.tsv(\.\d+)?$")  # part of a table, such as trainval_..._genome.tsv.0
AGAIN = "the line may be truncated: download the file again"
LONGEST_NAME = 4096


@dataclass(frozen=True)
class TsvTable:
    path: Path

    @cached_property
    def _scanned(self) -> tuple[list[tuple[str, tuple[int, int]]], list[tuple[int, int]]]:
        """Return the name, offset and length (in bytes) of each line.

        Also return the offset and length of each line with too many fields.
        """
        lines, by_count = list[tuple[str, tuple[int, int]]](), dict[int, list[tuple[int, int]]]()
        offset = 0
        with self.path.open("rb") as file:
            while line := file.readline(MOST_BYTES + 1):
                check_size(len(line), f"{self.path}, after {len(lines)} lines", "a line")
                if line.strip():
                    name = line[:LONGEST_NAME].split(b"\t", 1)[0].decode("utf-8", "replace")
                    lines.append((name, (offset, len(line))))
                    by_count.setdefault(line.count(b"\t") + 1, []).append((offset, len(line)))
                offset += len(line)
        layout = len(BUTD if len(BUTD) in by_count else LXMERT)
        return lines, [place for count, places in by_count.items() if count > layout for place in places]

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        return numbered(self._scanned[0])

    @cached_property
    def joined(self) -> list[str]:
        """Return a text from each line with too many fields. The text ends with the next line's name.

        Such a line was truncated by a crash. The next line follows it without a line break.
        """
        fields, counts = (_fields(self._line(place)) for place in self._scanned[1]), (len(BUTD), len(LXMERT))
        texts = (bytes(row[-count][-LONGEST_NAME:]) for row in fields for count in counts if len(row) > count)
        return [text.decode("utf-8", "replace") for text in texts]

    def names(self) -> Iterable[str]:
        return [name for name, _ in self._scanned[0]]

    def _line(self, place: tuple[int, int]) -> bytes:
        with self.path.open("rb", buffering=0) as file:
            file.seek(place[0])
            return file.read(place[1]) or b""

    def read(self, name: str) -> Raw:
        where, fields = f"{self.path}, {name.partition(chr(0))[0]}", _fields(self._line(self.places[name]))
        layout = {len(BUTD): BUTD, len(LXMERT): LXMERT}.get(len(fields))
        if layout is None:
            refuse(where, f"a line of {len(fields)} fields", f"{len(BUTD)} or {len(LXMERT)}", AGAIN)
        values = dict(zip(layout, fields, strict=True))
        height, width = ("img_h", "img_w") if layout is LXMERT else ("image_h", "image_w")
        rows, size = _whole(values, "num_boxes", where), (_whole(values, width, where), _whole(values, height, where))
        arrays = {
            field: of_base64(values[field], "<f4", rows, where, field)
            for field in ("objects_conf", "boxes", "features")
            if field in values
        }
        scores = arrays["objects_conf"][:, 0] if layout is LXMERT else None
        return Raw(where, arrays["features"], arrays["boxes"], size, scores=scores)


def _fields(line: bytes) -> list[memoryview]:
    """Split a line at tabs. The fields are views, not copies."""
    tabs = [-1]
    while (tab := line.find(b"\t", tabs[-1] + 1)) >= 0:
        tabs.append(tab)
    end = len(line) - (1 if line.endswith(b"\n") else 0) - (1 if line.endswith(b"\r\n") else 0)
    whole = memoryview(line)
    return [whole[start + 1 : stop] for start, stop in zip(tabs, [*tabs[1:], end], strict=True)]


def _whole(values: dict[str, memoryview], name: str, where: str) -> int:
    try:
        return int(bytes(values[name][:40]))
    except ValueError:
        refuse(where, f"`{name}` {bytes(values[name][:40]).decode('utf-8', 'replace')!r}", "a whole number", AGAIN)


def units(listing: Listing) -> list[Unit]:
    files = [path for path in listing.ending(".tsv", *map(".{}".format, range(100))) if PART.search(path.name)]
    return [TsvTable(path) for path in files if _is_table(path)]


def _is_table(path: Path) -> bool:
    """Return True for a feature table: one of the first lines has a name, then two numbers (width and height).

    A truncated line also counts, because `read` reports the fault later.
    """
    with explained(DataError, f"{path}: cannot be read", "copy it again"), path.open("rb") as file:
        rows = (file.readline(MOST_BYTES).split(b"\t") for _ in range(raw.LOOKED_AT))
        return any(len(row) >= len(BUTD) and all(side.isdigit() for side in row[1:3]) for row in rows)
