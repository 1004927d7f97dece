"""Read the entries on the complete pages of a truncated LMDB file, such as an interrupted download.

The lmdb library cannot read such a file: a page beyond the file's end would crash the process. The format is LMDB 0.9
(lmdb.h, mdb.c). A page begins with its number, 2 unused bytes, flags, and the bounds of its free space. A node begins
with the size of its data, flags, and the length of its key. Data that does not fit in a page is stored in overflow
pages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path

PAGE, NODE, NUMBER = struct.Struct("<QHHHH"), struct.Struct("<HHHH"), struct.Struct("<Q")
LEAF, OVERFLOW, META = 0x02, 0x04, 0x08
# Flags of a node: its data is in overflow pages; its data is a database or has duplicates.
ELSEWHERE, OF_A_TREE = 0x01, 0x06


@dataclass(frozen=True)
class CutDatabase:
    """The complete entries of a truncated `data.mdb`.

    If a key occurs several times, the entry on the last page counts.
    """

    path: Path
    page: int  # page size in bytes

    @cached_property
    def _content(self) -> mmap:
        with self.path.open("rb") as file:
            return mmap(file.fileno(), 0, access=ACCESS_READ)

    @cached_property
    def _places(self) -> tuple[dict[bytes, tuple[int, int]], set[bytes]]:
        """Return {key: (start, size) of its data in the file}, and the keys whose data is missing from the file."""
        places, cut, number, end = dict[bytes, tuple[int, int]](), set[bytes](), 0, len(self._content) // self.page
        while number < end:
            flags, many = self._kind(number)
            for key, begin, size in self._nodes(number) if flags & LEAF else ():
                if begin is None:
                    cut.add(key)
                else:
                    places[key] = begin, size
            number += many if flags & OVERFLOW else 1
        return places, cut - places.keys()

    def _kind(self, number: int) -> tuple[int, int]:
        """Return a page's flags and its number of overflow pages.

        The flags are 0 if the page is not at the position of its number.
        """
        own, _, flags, low, high = PAGE.unpack_from(self._content, number * self.page)
        return (flags, max(1, low | high << 16)) if own == number and not flags & META else (0, 1)

    def _nodes(self, number: int) -> Iterator[tuple[bytes, int | None, int]]:
        """Yield the key of each node of a leaf page, and the start and size of its data.

        The start is None if the data is cut off.
        """
        start = number * self.page
        _, _, _, low, high = PAGE.unpack_from(self._content, start)
        if not PAGE.size <= low <= high <= self.page:
            return
        for (place,) in struct.iter_unpack("<H", self._content[start + PAGE.size : start + low - low % 2]):
            if not high <= place <= self.page - NODE.size:
                continue
            small, great, flags, length = NODE.unpack_from(self._content, start + place)
            size, at = small | great << 16, place + NODE.size + length
            stored = NUMBER.size if flags & ELSEWHERE else size
            if flags & OF_A_TREE or at + stored > self.page:
                continue
            key, begin = self._content[start + place + NODE.size : start + at], start + at
            if flags & ELSEWHERE:
                (first,) = NUMBER.unpack_from(self._content, begin)
                begin = first * self.page + PAGE.size
                whole = begin + size <= len(self._content) and self._kind(first)[0] & OVERFLOW
                yield key, begin if whole else None, size
            else:
                yield key, begin, size

    def get(self, key: bytes) -> bytes | None:
        begin, size = self._places[0].get(key, (0, -1))
        return self._content[begin : begin + size] if size >= 0 else None

    def keys(self) -> list[bytes]:
        """Return the keys of the entries. Numeric keys are left out: LMDB uses them for its list of free pages."""
        return [key for key in self._places[0] if b"\0" not in key]

    def cut(self) -> list[bytes]:
        """Return the keys whose data is missing from the truncated file."""
        return sorted(key for key in self._places[1] if b"\0" not in key)
