"""Find the licence of an image in its page or file: rel=license, schema.org, Creative Commons, XMP or IPTC."""

import re
from collections.abc import Sequence
from typing import Any

UNKNOWN = "unknown"
COMMONS = re.compile(r"creativecommons\.org/(?:licenses/[a-z-]+|publicdomain/(?:zero|mark))(?:/[\d.]+)?", re.I)
_COMMONS_BYTES = re.compile(COMMONS.pattern.encode(), re.I)
_SCHEMA = re.compile(r"\"license\"\s*:\s*\"([^\"\\]{1,300})\"")
_LINKS = 'a[rel~="license"], link[rel~="license"], a[href*="creativecommons.org/"], [itemprop="license"]'
TELLING = f'{_LINKS}, script[type="application/ld+json"]'  # selector of the tags that may name a licence
_XMP = re.compile(
    rb"(?:WebStatement|xmpRights:UsageTerms|cc:license)[^>]{0,40}[=>][^<\"]{0,8}[\"']?([^\"'<]{4,300})", re.I
)
_MARKS = (b"creativecommons.org", b"WebStatement", b"UsageTerms", b"cc:license")
LEVELS = 6


def of_page(tree: Any, picture: Any, telling: Sequence[Any]) -> str:
    """Return the licence named near the image, else the licence of the page, else `unknown`.

    `telling`: the tags of the page that can state a licence (TELLING).
    """
    if not telling:
        return UNKNOWN
    parent = picture.parent if picture is not None else None
    for _ in range(LEVELS):
        if parent is None or parent.tag in ("body", "html"):
            break
        if licence := _link(parent):
            return licence
        parent = parent.parent
    for node in telling:
        if node.tag == "script" and (match := _SCHEMA.search(node.text() or "")):
            return named(match[1])
    return _link(tree) or UNKNOWN


def of_file(content: bytes) -> str | None:
    """Return the licence in the file's XMP or IPTC; None if the first and last 64 kB of the file have no licence."""
    ends = content[: 2**16] + content[-(2**16) :]
    if not any(mark in ends for mark in _MARKS):  # a hundred times as fast as the patterns below
        return None
    match = _COMMONS_BYTES.search(ends) or _XMP.search(ends)
    return named(match[match.lastindex or 0].decode("utf-8", "replace")) if match else None


def named(text: str) -> str:
    """Return the short form of a Creative Commons licence, such as `cc-by-4.0`. Other texts are returned unchanged."""
    if match := COMMONS.search(text):
        name = match[0].lower().removeprefix("creativecommons.org/")
        name = name.replace("licenses/", "").replace("publicdomain/", "").strip("/").replace("/", "-")
        return f"cc-{name.replace('zero', '0')}" if not name.startswith("cc") else name
    return " ".join(text.encode("utf-8", "replace").decode().split())[:200] or UNKNOWN


def is_free(licence: str, wanted: str) -> bool:
    """Return True if the licence is accepted.

    `wanted`: `cc` for any Creative Commons licence, or the beginning of a licence.
    """
    return licence != UNKNOWN and licence.lower().startswith(f"{wanted.lower()}-" if wanted == "cc" else wanted.lower())


def _link(node: Any) -> str | None:
    link = node.css_first(_LINKS)
    if link is None:
        return None
    return named(link.attributes.get("href") or link.attributes.get("content") or link.text() or "")
