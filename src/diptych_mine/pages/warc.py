"""Read the records of a WARC file.

A bad record is reported, and reading continues with the next record. fastwarc stops with an error at a bad header, and
returns a truncated record without an error. So after a fault, this reader searches for the next record, and checks that
the previous record is complete.
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
from diptych_mine.pages import wat
from diptych_mine.pages.bodies import kind_of, unpacked
from diptych_mine.pages.charsets import content_type

MOST_BODY = 10_000_000  # a decoded body of more bytes is counted as too large
PART = 64 * 2**20  # a file is divided into parts of about this many bytes, and one worker reads a part
MOST_MEMBER = 64 * 2**20  # at most this many bytes of a gzip member are decompressed
_LENGTH = re.compile(rb"(?:\A|\r\n)content-length:[ \t]*(\d{1,18})[ \t]*(?:\r\n|\Z)", re.I)
_BLANK, _LINE = re.compile(rb"\r?\n\r?\n"), re.compile(r"\r?\n")
_STATUS = re.compile(r"(?:HTTP/[\d.]+|ICY) +(\d{3})")
_WHOLE = re.compile(r"bytes 0-(\d{1,15})/(\d{1,15})", re.I)  # the range of a response 206 that may be the whole body
HEAD = 2**16  # the headers of an HTTP response are read from at most this many bytes
PAGES = ("text/html", "application/xhtml+xml")
UNTYPED = ("", "application/octet-stream", "binary/octet-stream", "application/unknown", "application/x-download")
GZIP, RECORD = b"\x1f\x8b\x08", b"WARC/1."

RecordKind = Literal["page", "picture", "request", "revisit", "redirect", "text", "metadata", "other", "large", "bad"]
# Types of records that are counted by name. WET files have records of type `conversion`.
_COUNTED: dict[str, RecordKind] = {
    "request": "request", "revisit": "revisit", "conversion": "text", "metadata": "metadata"
}  # fmt: skip


@dataclass
class WarcRecord:
    """A record of a WARC file.

    `body` is decoded (chunks, gzip, deflate, br, zstd). `body` and `headers` are empty if records of this kind were not
    requested. `moved`: the URL that a redirect leads to, or that holds the content of a revisit; empty if the revisit
    names only the content's `digest`.
    """

    kind: RecordKind
    address: str = ""
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    charset: str | None = None
    body: bytes = b""
    date: str = ""
    why: str = ""
    moved: str = ""
    digest: str = ""


def parts(path: Path) -> list[tuple[int, int]]:
    """Return (start, end) in bytes of parts of about 64 MB.

    Each part begins at a record. Records are found by walking from one record to the next, because a page may contain
    text that looks like a record. Everything after a bad record is one part. A file of a single gzip member is one
    part, too. Decompressing a gigabyte takes a few seconds.
    """
    if path.stat().st_size <= PART:
        return [(0, path.stat().st_size)]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        begins, at = [0], 0
        while at < len(content):
            if at - begins[-1] >= PART:
                begins.append(at)
            whole, at = _extent(content, at)
            if not whole:
                break
            while content[at : at + 2] == b"\r\n":  # empty lines between uncompressed records
                at += 2
        return list(pairwise([*begins, len(content)]))


def read(
    path: Path, bodies: Container[RecordKind] = ("page", "picture"), part: tuple[int, int] | None = None
) -> Iterator[WarcRecord]:
    """Yield the records of a file, or of a part of it.

    Only records of the kinds in `bodies` have headers and bodies. Damage never raises an error: it is reported as a
    record of kind `bad`.
    """
    if path.stat().st_size == 0:
        yield WarcRecord("bad", why="an empty file")
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start, limit = part or (0, len(content))
        seen = False
        while start < limit:
            last: tuple[int, WarcRecord] | None = None
            fault = ""
            for position, record in _records(path, start, bodies):
                if isinstance(record, str):
                    fault = record
                elif limit >= len(content) or position < limit:
                    if last is not None:
                        yield last[1]
                    last, seen = (position, record), True
                    continue
                break
            end = limit
            if last is not None:
                whole, end = _extent(content, last[0])
                cut = WarcRecord("bad", last[1].address, why="cut short, or not of the stated length")
                yield last[1] if whole else cut
                if end >= limit and content[last[0] : last[0] + 3] != GZIP and _cut_inside(content):
                    yield WarcRecord("bad", why="cut short")
            if not fault and (last is None or end >= limit or not content[end : min(limit, end + 4096)].strip()):
                break
            after = end if last is not None else start + 1
            start = _next_record(content, after)
            if fault and (last is None or start > after or start >= limit):
                yield WarcRecord("bad", why=fault if seen or start < limit else f"no WARC: {fault}")


def _records(path: Path, start: int, bodies: Container[RecordKind]) -> Iterator[tuple[int, WarcRecord | str]]:
    """Yield (position, record) up to the first fault. The fault is yielded as (-1, message)."""
    with requires_extra("diptych mine", "mine"):
        from fastwarc.warc import ArchiveIterator
    with path.open("rb") as stream:
        stream.seek(start)
        try:
            for record in ArchiveIterator(stream, parse_http=False, auto_decode="none", fsspec_args=False):
                yield record.stream_pos, _parsed(record, bodies)
        except (OSError, ValueError, RuntimeError) as error:  # fastwarc raises RuntimeError for a damaged body
            yield -1, str(error)


def _parsed(record: Any, bodies: Container[RecordKind]) -> WarcRecord:
    kind = str(record.record_type)
    address = (record.headers.get("WARC-Target-URI") or "").strip("<>").strip()
    media = record.headers.get("Content-Type") or ""
    http = kind == "response" and media.strip().lower().startswith("application/http")
    digest = record.headers.get("WARC-Payload-Digest") or ""
    if kind != "resource" and not http:
        if kind == "metadata" and "page" in bodies and media.startswith("application/json"):
            return _of_wat(address, record.reader.read(MOST_BODY))
        original = (record.headers.get("WARC-Refers-To-Target-URI") or "").strip("<>").strip()
        return WarcRecord(_COUNTED.get(kind, "other"), address, moved=original, digest=digest)
    return _of_http(record, http, address, media, digest, bodies)


def _of_wat(address: str, content: bytes) -> WarcRecord:
    try:
        page = wat.page_of(content)
    except ValueError:
        return WarcRecord("bad", address, why="metadata that are not JSON")
    return (
        WarcRecord("metadata", address) if page is None else WarcRecord("page", address, 200, page[0], "utf-8", page[1])
    )


def _of_http(
    record: Any, http: bool, address: str, media: str, digest: str, bodies: Container[RecordKind]
) -> WarcRecord:
    start = record.reader.read(HEAD)
    status, headers, begin = _http(start) if http else (200, [("content-type", media)], 0)
    known = {name.lower(): value for name, value in headers}
    media, charset = content_type(known.get("content-type", ""))
    if status == 206 and (part := _WHOLE.fullmatch(known.get("content-range", "").strip())):
        status = 200 if int(part[1]) + 1 == int(part[2]) else 206
    body_kind: RecordKind | None = "picture" if media.startswith("image/") else "page" if media in PAGES else None
    if (
        status != 200
        or (body_kind is None and media not in UNTYPED)
        or (body_kind is not None and body_kind not in bodies)
    ):
        there = known.get("location", "") if status in (301, 302, 303, 307, 308) else ""
        left = "redirect" if there else body_kind if status == 200 and body_kind else "other"
        return WarcRecord(left, address, status, moved=there, digest=digest)
    raw = start[begin:] + record.reader.read(max(0, 2 * MOST_BODY - len(start)))
    parsed = WarcRecord(body_kind or "other", address, status, headers if http else [], charset)
    parsed.date = record.headers.get("WARC-Date") or ""
    try:
        chunked = "chunked" in known.get("transfer-encoding", "").lower()
        parsed.body = unpacked(raw, chunked, known.get("content-encoding", ""), MOST_BODY + 1)
    except ValueError as error:
        return WarcRecord("bad", address, status, why=f"its body: {error}")
    if body_kind is None:
        parsed.kind = kind_of(parsed.body)
        if parsed.kind not in bodies:
            return WarcRecord(parsed.kind, address, status, digest=digest)
    if len(parsed.body) > MOST_BODY or len(raw) >= 2 * MOST_BODY:
        return WarcRecord("large", address, status, why=f"over {MOST_BODY:,} bytes")
    return parsed


def _http(start: bytes) -> tuple[int, list[tuple[str, str]], int]:
    """Return the status, the headers and the start of the body of an HTTP response.

    Lines may end in LF, as in ClueWeb.
    """
    end = _BLANK.search(start)
    first, *lines = _LINE.split(start[: end.start() if end else HEAD].decode("utf-8", "replace"))
    status = _STATUS.match(first)
    pairs = (line.partition(":") for line in lines)
    headers = [(name.strip(), value.strip()) for name, colon, value in pairs if colon]
    return int(status[1]) if status else 0, headers, end.end() if end else len(start)


def _extent(content: mmap.mmap, position: int) -> tuple[bool, int]:
    """Return True and the end of the record at `position` if it is complete.

    Otherwise return False and a position after its start.
    """
    start = content[position : position + 7]
    if not start.startswith(GZIP) and start != RECORD:
        return True, len(content)  # inside a gzip member that holds many records
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
    if whole and length < len(text):  # the gzip member has several records
        return True, end
    return whole, end


def _measured(text: Any, position: int, limit: int) -> tuple[bool, int]:
    """Return the length of the whole record, preceded by True if its header states that length correctly."""
    start = position
    while text[position : position + 2] == b"\r\n" and position < limit:  # empty lines that end the previous record
        position += 2
    header_end = text.find(b"\r\n\r\n", position, min(limit, position + 2**20))
    if header_end < 0:
        return False, 0
    stated = _LENGTH.search(text[position:header_end])
    if stated is None:  # the header states no length, or a negative one
        return False, 0
    end = header_end + 4 + int(stated[1])
    return end <= limit and not text[end : end + 4].strip(), end - start


def _cut_inside(content: mmap.mmap) -> bool:
    """Return True if a file ends inside its first gzip member, or this member is damaged."""
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
    """Return the position of the next record at or after `start`; the length of the file if there is none."""
    if content[:3] != GZIP:
        at = content.find(RECORD, start)
        return at if at >= 0 else len(content)
    while (start := content.find(GZIP, start)) >= 0:
        try:
            if zlib.decompressobj(31).decompress(content[start : start + 4096], 16).startswith(b"WARC/"):
                return start
        except zlib.error:
            pass
        start += 1
    return len(content)
