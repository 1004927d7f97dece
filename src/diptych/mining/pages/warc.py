"""Records of a WARC file; a bad one costs itself, not its file.

fastwarc raises at a bad header and reads a cut record without a word, so the reader here looks for the next record
after a fault, and asks of the record before it whether it was whole.
"""

import mmap
import re
import zlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from diptych.runtime.extras import requires_extra

MOST_BODY = 10_000_000  # bytes of a body as decoded; what is longer is counted as too large
PART = 64 * 2**20  # of a file: what one worker reads
MOST_MEMBER = 64 * 2**20  # of a gzip member that is read again after a fault
_LENGTH = re.compile(rb"(?:\A|\r\n)content-length:[ \t]*(\d{1,18})[ \t]*(?:\r\n|\Z)", re.I)
GZIP, RECORD = b"\x1f\x8b\x08", b"WARC/1."

Kind = Literal["page", "picture", "request", "revisit", "other", "large", "bad"]


@dataclass
class WarcRecord:
    """One record. `body` is decoded (chunks, gzip, br); it and `headers` are empty unless the kind was asked for."""

    kind: Kind
    address: str = ""
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    charset: str | None = None
    body: bytes = b""
    date: str = ""
    why: str = ""


def parts(path: Path) -> list[tuple[int, int]]:
    """Where each part of some 64 MB begins and ends: at a record, found by going from one to the next.

    Nothing else is a safe place to cut: a page may hold what looks like a record. What comes after a bad record, and a
    file that is one gzip member, is not cut. A gigabyte is unpacked in seconds, once.
    """
    if path.stat().st_size <= PART:
        return [(0, path.stat().st_size)]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        starts, at = [0], 0
        while at < len(content):
            if at - starts[-1] >= PART:
                starts.append(at)
            whole, at = _extent(content, at)
            if not whole:
                break
            while content[at : at + 2] == b"\r\n":  # between records that are not packed
                at += 2
        return list(pairwise([*starts, len(content)]))


def read(
    path: Path, bodies: Container[Kind] = ("page", "picture"), part: tuple[int, int] | None = None
) -> Iterator[WarcRecord]:
    """Every record of the file, or of a part of it, in order, with the bodies of those kinds; never raises for data."""
    if path.stat().st_size == 0:
        yield WarcRecord("bad", why="an empty file")
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start, limit = part or (0, len(content))
        seen = False
        while start < limit:
            held: tuple[int, WarcRecord] | None = None
            fault = ""
            records = _records(path, start, bodies)
            while True:
                try:
                    position, found = next(records)
                except StopIteration:
                    break
                except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the body of the record before
                    fault = str(error)
                    break
                if limit < len(content) and position >= limit:
                    break
                if held is not None:
                    yield held[1]
                held, seen = (position, found), True
            end = limit
            if held is not None:
                whole, end = _extent(content, held[0])
                yield (
                    held[1]
                    if whole
                    else WarcRecord("bad", held[1].address, why="cut short, or of another length than told")
                )
                if end >= limit and content[held[0] : held[0] + 3] != GZIP and _cut_inside(content):
                    yield WarcRecord("bad", why="cut short")
            if not fault and (held is None or end >= limit or not content[end : min(limit, end + 4096)].strip()):
                break
            after = end if held is not None else start + 1
            start = _next_record(content, after)
            if fault and (held is None or start > after or start >= limit):
                yield WarcRecord("bad", why=fault if seen or start < limit else f"no WARC: {fault}")


def _records(path: Path, start: int, bodies: Container[Kind]) -> Iterator[tuple[int, WarcRecord]]:
    with requires_extra("diptych mine", "mine"):
        from fastwarc.warc import ArchiveIterator
    with path.open("rb") as stream:
        stream.seek(start)
        for record in ArchiveIterator(stream, parse_http=True, auto_decode="all", fsspec_args=False):
            yield record.stream_pos, _found(record, bodies)


def _found(record: Any, bodies: Container[Kind]) -> WarcRecord:  # noqa: PLR0911  # a verdict a line
    kind = str(record.record_type)
    address = (record.headers.get("WARC-Target-URI") or "").strip("<>").strip()
    if kind in ("request", "revisit"):
        return WarcRecord("request" if kind == "request" else "revisit", address)
    if kind not in ("response", "resource"):
        return WarcRecord("other", address)
    http = record.http_headers if kind == "response" else None
    if kind == "response" and http is None:
        return WarcRecord("other", address)
    status = (http.status_code or 0) if http is not None else 200
    shown = (record.http_content_type if http is not None else record.headers.get("Content-Type")) or ""
    media = shown.split(";")[0].strip().lower()
    if status != 200:
        return WarcRecord("other", address, status)
    if not media.startswith("image/") and media not in ("text/html", "application/xhtml+xml"):
        return WarcRecord("other", address, status)
    found = WarcRecord(
        "picture" if media.startswith("image/") else "page", address, status,
        charset=record.http_charset if http is not None else None, date=record.headers.get("WARC-Date") or "",
    )  # fmt: skip
    if found.kind not in bodies:
        return found
    if http is not None:
        found.headers = [(str(name), str(value)) for name, value in http.items()]
    try:
        found.body = record.reader.read(MOST_BODY + 1)
    except (OSError, ValueError, RuntimeError) as error:
        return WarcRecord("bad", address, status, why=f"its body: {error}")
    if len(found.body) > MOST_BODY:
        return WarcRecord("large", address, status, why=f"over {MOST_BODY:,} bytes")
    return found


def _extent(content: mmap.mmap, position: int) -> tuple[bool, int]:
    """Whether the record at `position` is whole, and where it ends: its own start + 1 where it is not."""
    start = content[position : position + 7]
    if not start.startswith(GZIP) and start != RECORD:
        return True, len(content)  # one gzip member that holds many records: positions in it are not to be had
    if start == RECORD:
        whole, length = _measured(content, position, len(content))
        return whole, position + (length if whole else 1)
    reader = zlib.decompressobj(31)
    text, at = b"", position
    try:
        while not reader.eof and at < len(content) and len(text) < MOST_MEMBER:
            text += reader.decompress(content[at : at + 2**20], MOST_MEMBER)
            at += 2**20
    except zlib.error:
        return False, position + 1
    if not reader.eof:
        return False, position + 1
    end = min(at, len(content)) - len(reader.unused_data)
    whole, length = _measured(text, 0, len(text))
    if whole and length < len(text):  # one gzip member for the whole file, or several records in one
        return True, end
    return whole, end


def _measured(text: Any, position: int, limit: int) -> tuple[bool, int]:
    """Whether what its header tells fits, and the length of header and block together."""
    start = position
    while text[position : position + 2] == b"\r\n" and position < limit:  # the end of the record before
        position += 2
    header_end = text.find(b"\r\n\r\n", position, min(limit, position + 2**20))
    if header_end < 0:
        return False, 0
    told = _LENGTH.search(text[position:header_end])
    if told is None:  # or less than nothing, which would lead back to where it was
        return False, 0
    end = header_end + 4 + int(told[1])
    return end <= limit and not text[end : end + 4].strip(), end - start


def _cut_inside(content: mmap.mmap) -> bool:
    """Whether a file that is one gzip member with many records ends before that does."""
    if content[:3] != GZIP:
        return False
    reader = zlib.decompressobj(31)
    for at in range(0, len(content), 2**20):
        try:
            reader.decompress(content[at : at + 2**20])
        except zlib.error:
            return True
        if reader.eof:
            return False
    return True


def _next_record(content: mmap.mmap, start: int) -> int:
    """Where the next record begins at or after `start`; the file's length where none does."""
    if content[:3] != GZIP:
        found = content.find(RECORD, start)
        return found if found >= 0 else len(content)
    while (start := content.find(GZIP, start)) >= 0:
        try:
            if zlib.decompressobj(31).decompress(content[start : start + 4096], 16).startswith(b"WARC/"):
                return start
        except zlib.error:
            pass
        start += 1
    return len(content)
