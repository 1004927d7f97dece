"""The licence of a picture, as its page or its file tells it: rel=license, schema.org, Creative Commons, XMP, IPTC."""

import re
from collections.abc import Sequence
from typing import Any

UNKNOWN = "unknown"
COMMONS = re.compile(
    r"creativecommons\.org/(?:licenses/[a-z-]+(?:/[\d.]+)?|publicdomain/(?:zero|mark)(?:/[\d.]+)?)", re.I
)
_COMMONS_BYTES = re.compile(COMMONS.pattern.encode(), re.I)
_SCHEMA = re.compile(r"\"license\"\s*:\s*\"([^\"\\]{1,300})\"")
_LINKS = 'a[rel~="license"], link[rel~="license"], a[href*="creativecommons.org/"], [itemprop="license"]'
TELLING = f'{_LINKS}, script[type="application/ld+json"]'  # tags of a page that may tell one
_XMP = re.compile(
    rb"(?:WebStatement|xmpRights:UsageTerms|cc:license)[^>]{0,40}[=>][^<\"]{0,8}[\"']?([^\"'<]{4,300})", re.I
)
_MARKS = (b"creativecommons.org", b"WebStatement", b"UsageTerms", b"cc:license")
LEVELS = 6


def of_page(tree: Any, picture: Any, telling: Sequence[Any]) -> str:
    """Near the picture first, then of the page, whose TELLING tags are given; `unknown` where nothing tells one."""
    if not telling:
        return UNKNOWN
    parent = picture.parent
    for _ in range(LEVELS):
        if parent is None or parent.tag in ("body", "html"):
            break
        if found := _link(parent):
            return found
        parent = parent.parent
    for node in telling:
        if node.tag == "script" and (match := _SCHEMA.search(node.text() or "")):
            return named(match[1])
    return _link(tree) or UNKNOWN


def of_file(content: bytes) -> str | None:
    """From the XMP or IPTC that stands in the file's first and last 64 kB; None where none is told."""
    ends = content[: 2**16] + content[-(2**16) :]
    if not any(mark in ends for mark in _MARKS):  # a search for these takes a hundredth of what a pattern does
        return None
    if match := _COMMONS_BYTES.search(ends):
        return named(match[0].decode("ascii", "replace"))
    if match := _XMP.search(ends):
        return named(match[1].decode("utf-8", "replace"))
    return None


def named(text: str) -> str:
    """`cc-by-4.0` and the like for what is Creative Commons', the words themselves for others."""
    if match := COMMONS.search(text):
        name = match[0].lower().removeprefix("creativecommons.org/")
        name = name.replace("licenses/", "").replace("publicdomain/", "").strip("/").replace("/", "-")
        return f"cc-{name.replace('zero', '0')}" if not name.startswith("cc") else name
    return " ".join(text.encode("utf-8", "replace").decode().split())[:200] or UNKNOWN


def is_free(licence: str, wanted: str) -> bool:
    """`cc` wants any of Creative Commons'; other words want a licence that begins so."""
    return licence != UNKNOWN and licence.lower().startswith(f"{wanted.lower()}-" if wanted == "cc" else wanted.lower())


def _link(node: Any) -> str | None:
    found = node.css_first(_LINKS)
    if found is None:
        return None
    link = found.attributes.get("href") or found.attributes.get("content") or found.text() or ""
    return named(link)
