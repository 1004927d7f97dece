"""Decode bodies of HTTP responses, recognise their kind, and detect pages that would be slow to parse."""

import re
import zlib
from collections.abc import Callable
from typing import Any, Literal

_CHUNK = re.compile(rb"\s{0,4}([0-9a-f]{1,8})[ \t]*(?:;[^\r\n]{0,200})?\r?\n", re.I)
_CONTROLS = re.compile(rb"[\0-\x08\x0e-\x1f]")
_PICTURE = re.compile(rb"\xff\xd8\xff|\x89PNG\r\n|GIF8[79]a|RIFF....WEBP|BM....\0\0\0\0|II\*\0|MM\0\*", re.S)
_ZSTD = b"\x28\xb5\x2f\xfd"
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,200}(?:<!--.{0,500}?-->\s{0,200})?<(?:!doctype\s+html|html)\b", re.I | re.S)

DEEPEST = 1_000  # pages with more nested tags are dropped, because lexbor takes quadratic time (5 s for 32,000 tags)
MOST_ATTRIBUTES = 1_000  # pages with more attributes in a tag are dropped, because lexbor takes quadratic time
_TAG = re.compile(rb"<(/?)([a-z][a-z0-9-]{0,40})")
_ATTRIBUTE = re.compile(rb"""[^\s"'>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>"']+))?""")
_RAW = re.compile(
    rb"<!--[^-]*+(?:-(?!->)[^-]*+)*+|<(script|style|textarea|title)\b[^>]{0,2000}>[^<]*+(?:<(?!/\1)[^<]*+)*+"
)
_FORMATTING = frozenset(
    {b"a", b"b", b"big", b"code", b"em", b"font", b"i", b"nobr", b"s", b"small", b"strike", b"strong", b"tt", b"u"}
)
# Tags without content (<br>), or that the next tag of the same kind closes (<li>). Not <option>, which lexbor nests.
_CLOSED = re.compile(
    rb"(?:area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr|p|li|t[dhr]|d[td]|thead|tbody|tfoot"
    rb"|colgroup|html|head|body)\Z"
)


def too_slow(html: str) -> bool:
    """Return True for a page with more than DEEPEST nested tags, or a tag with more than MOST_ATTRIBUTES attributes."""
    page = _RAW.sub(b" ", html.encode("utf-8", "replace").lower())  # four times as fast to search as a str
    for part in page.split(b">"):
        tag = _TAG.match(part, max(0, part.rfind(b"<"))) if len(part) > 2 * MOST_ATTRIBUTES else None
        if tag is not None and sum(1 for _ in _ATTRIBUTE.finditer(part, tag.start())) > MOST_ATTRIBUTES:
            return True
    if page.count(b"<") - page.count(b"</") < DEEPEST:
        return False
    opened: list[bytes] = []
    for close, name in _TAG.findall(page):
        if _CLOSED.match(name):
            continue
        if not close:
            opened.append(name)
        elif opened and opened[-1] == name:
            opened.pop()
        elif name in opened:  # closes the tags inside it too, except formatting tags
            at = len(opened) - 1 - opened[::-1].index(name)
            opened[at:] = [one for one in opened[at + 1 :] if one in _FORMATTING]
        if len(opened) > DEEPEST:
            return True
    return False


def kind_of(body: bytes) -> Literal["picture", "page", "other"]:
    """Return the kind of a body, recognised by its first bytes."""
    return "picture" if _PICTURE.match(body) else "page" if _HTML.match(body) else "other"


def decoder(name: str) -> tuple[Callable[[bytes, int], bytes], type[Exception]]:
    """Return a function that decodes a chunk of a body, and the error that it raises for a damaged chunk.

    The function takes the chunk and the largest number of bytes to return. Raises LookupError for encodings other than
    identity, gzip, deflate and br.
    """
    if name in ("", "identity"):
        return lambda chunk, most: chunk[:most], zlib.error
    if name in ("gzip", "x-gzip", "deflate"):
        reader: Any = zlib.decompressobj(31) if name != "deflate" else None

        def inflate(chunk: bytes, most: int) -> bytes:
            nonlocal reader
            if reader is None:  # some servers send deflate without zlib's header, which the RFC requires
                headed = chunk[:1] and chunk[0] & 15 == 8 and (len(chunk) < 2 or not (chunk[0] << 8 | chunk[1]) % 31)
                reader = zlib.decompressobj(15 if headed else -15)
            return bytes(reader.decompress(chunk, max(1, most)))

        return inflate, zlib.error
    if name == "br":
        import brotli

        unpacker = brotli.Decompressor()

        def unpack(chunk: bytes, most: int) -> bytes:
            made = bytearray(unpacker.process(chunk, output_buffer_limit=max(1, most)))
            while not unpacker.can_accept_more_data() and len(made) < most:
                made += unpacker.process(b"", output_buffer_limit=max(1, most - len(made)))
            return bytes(made)

        return unpack, brotli.error
    raise LookupError(name)


def unpacked(raw: bytes, chunked: bool, encodings: str, most: int) -> bytes:
    """Return at most `most` bytes of a saved body, with chunks joined and encodings decoded.

    Many crawlers save decoded bodies with the original headers. So a body that is not encoded as the headers state is
    returned unchanged if it begins like a text or an image. Otherwise ValueError is raised. Zstd is recognised by its
    first bytes, whatever the headers state.
    """
    if chunked:
        raw = _joined(raw)
    for name in reversed(encodings.lower().split(",")):
        try:
            decode, fault = decoder(name.strip())
        except LookupError:
            continue
        try:
            raw = decode(raw, most)
        except fault as error:
            if _CONTROLS.search(raw[:512]) and not _PICTURE.match(raw) and not raw.startswith(_ZSTD):
                raise ValueError(f"not {name.strip()}: {error}") from error
    return _expanded(raw, most) if raw.startswith(_ZSTD) else raw[:most]


def _expanded(raw: bytes, most: int) -> bytes:
    """Return at most `most` bytes of a body of zstd. Raises ValueError if it is damaged or cut short."""
    import pyarrow as pa

    try:
        return bytes(pa.CompressedInputStream(pa.BufferReader(raw), "zstd").read(most))
    except OSError as error:
        raise ValueError(f"not zstd: {error}") from error


def _joined(raw: bytes) -> bytes:
    """Return the joined chunks of a body. A body that does not begin with a complete chunk is returned unchanged."""
    joined, at = bytearray(), 0
    while (head := _CHUNK.match(raw, at)) is not None:
        size = int(head[1], 16)
        at = head.end() + size
        if size == 0:
            return bytes(joined)
        if not joined and raw[at : at + 1] not in (b"\r", b"\n"):
            return raw
        joined += raw[head.end() : at]
    return bytes(joined) or raw
