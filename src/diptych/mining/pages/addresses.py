"""Addresses of pages and images: which are usable, and which of a tag's attributes has the image's."""

import re
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

LONGEST = 2_000
LAZY = ("data-src", "data-original", "data-lazy-src", "data-lazy", "data-url", "data-hi-res-src", "data-img-src")
LAZY_SETS = ("data-srcset", "data-lazy-srcset")
_SAFE = "%/:=&?~#+!$,;'@()*[]"
# Most addresses match, and need no urllib: a tenth of its time.
_PLAIN = re.compile(
    r"(https?://[a-z0-9][a-z0-9.-]*(?::[1-9]\d{0,3})?(?=[/?#]|\Z))"
    r"(?:/(?![/.])(?:(?!/\.)[\w./%~,+=&@:!$*()-])*)?(?:\?[\w./%~,+=&:-]+)?",
    re.A,
)
# Possessive, and tried only where the last match ended: linear in the length of the srcset.
_IN_SET = re.compile(r"[\s,]*+(\S++)\s*+([^,]*+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)[wxh]\b")


def usable(address: str) -> bool:
    """True for http or https with a host, at most 2,000 letters, and neither user name nor password."""
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
    """The address joined to the page's, without fragment, in ASCII; unchanged if it cannot be parsed."""
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
    """The host in lower case, with the port if the address has one; empty for addresses without a host."""
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
        return f"{(parts.hostname or '').lower()}{port}"
    except ValueError:
        return ""


def largest(srcset: str) -> str | None:
    """The address with the greatest width or density of a srcset; None if it has none."""
    best, most, at = None, -1.0, 0
    srcset = srcset[:20_000]
    for _ in range(64):
        match = _IN_SET.match(srcset, at)
        if match is None:
            break
        address, descriptor, at = match[1], match[2], match.end()
        if address.endswith(","):
            address, descriptor, at = address.rstrip(","), "", match.end(1)
        size = float(number[1]) if (number := _SIZE.match(descriptor)) else 1.0
        if size > most:
            best, most = address, size
    return best


def sources(attributes: dict[str, str | None], sets: list[str]) -> str:
    """The address of an image from its tag's attributes; `sets` are the srcsets of the <source>s of its <picture>.

    The largest of its own srcset, else what a script would load later, else src, else the largest of a <source>.
    """
    for name in ("srcset", *LAZY_SETS, *LAZY):
        value = attributes.get(name)
        if value and not value.startswith("data:") and (address := value if name in LAZY else largest(value)):
            return address
    source = (attributes.get("src") or "").strip()
    if source and source[:5].lower() != "data:":
        return source
    return next(filter(None, map(largest, sets)), source)
