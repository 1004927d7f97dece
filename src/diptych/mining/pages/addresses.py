"""Addresses of pages and pictures: what is usable, and where a picture's own stands in its tag."""

import re
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

LONGEST = 2_000
LAZY = ("data-src", "data-original", "data-lazy-src", "data-lazy", "data-url", "data-hi-res-src", "data-img-src")
LAZY_SETS = ("data-srcset", "data-lazy-srcset")
_SAFE = "%/:=&?~#+!$,;'@()*[]"
# What most addresses are, in parts, and neither of these functions would change: a tenth of the time of urllib's.
_PLAIN = re.compile(
    r"(https?://[a-z0-9][a-z0-9.-]*(?::[1-9]\d{0,3})?(?=[/?#]|\Z))"
    r"(?:/(?![/.])(?:(?!/\.)[\w./%~,+=&@:!$*()-])*)?(?:\?[\w./%~,+=&:-]+)?",
    re.A,
)
# Possessive, and tried where the one before ended alone: no srcset takes more time than its length.
_IN_SET = re.compile(r"[\s,]*+(\S++)\s*+([^,]*+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)[wxh]\b")


def usable(address: str) -> bool:
    """http or https, a host, at most 2,000 letters, no name and password in it."""
    if len(address) > LONGEST:
        return False
    if _PLAIN.fullmatch(address):
        return True
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        return False


def absolute(base: str, address: str) -> str:
    """Joined to the page's, without fragment, in ASCII; the address itself where that cannot be."""
    address = address.strip()
    if len(address) > LONGEST or address[:5].lower() == "data:":
        return address[: LONGEST + 1]
    rooted = _PLAIN.match(base) if address[:1] == "/" else None
    if _PLAIN.fullmatch(whole := f"{rooted[1]}{address}" if rooted is not None else address):
        return whole
    try:
        parts = urlsplit(urljoin(base, address))
        host = parts.hostname or ""
        if not host.isascii():
            host = host.encode("idna").decode()
            parts = parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host)
        joined = urlunsplit(parts._replace(fragment=""))
    except (ValueError, UnicodeError):
        return address
    if joined.isascii() and " " not in joined:
        return joined
    return quote(joined.encode("utf-8", "replace"), safe=_SAFE)


def host_of(address: str) -> str:
    """In lower case, with the port where it is told; empty where there is none."""
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
        return f"{(parts.hostname or '').lower()}{port}"
    except ValueError:
        return ""


def largest(srcset: str) -> str | None:
    """Of a srcset, by width or density; None where it names none."""
    best, most, at = None, -1.0, 0
    srcset = srcset[:20_000]
    for _ in range(64):
        match = _IN_SET.match(srcset, at)
        if match is None:
            break
        address, told, at = match[1], match[2], match.end()
        if address.endswith(","):
            address, told, at = address.rstrip(","), "", match.end(1)
        size = float(found[1]) if (found := _SIZE.match(told)) else 1.0
        if size > most:
            best, most = address, size
    return best


def sources(attributes: dict[str, str | None], sets: list[str]) -> str:
    """The picture's address as its tag tells it; `sets` are those of the <source>s of its <picture>.

    The largest of its own srcset, else what a script would put in later, else src, else the largest of <source>.
    """
    for name in ("srcset", *LAZY_SETS):
        value = attributes.get(name)
        if value and not value.startswith("data:") and (found := largest(value)):
            return found
    for name in LAZY:
        if (value := attributes.get(name)) and not value.startswith("data:"):
            return value
    source = (attributes.get("src") or "").strip()
    if source and source[:5].lower() != "data:":
        return source
    for one in sets:
        if found := largest(one):
            return found
    return source
