"""URLs of pages and images: check and normalise them, and find the URL of an image among a tag's attributes."""

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

LONGEST = 2_000
LAZY = (
    "data-src", "data-original", "data-lazy-src", "data-lazy", "data-url", "data-hi-res-src", "data-img-src",
    "data-lazyload", "data-cfsrc", "data-ezsrc", "data-hires", "data-orig-file", "data-large-file", "data-full-src",
    "data-flickity-lazyload", "data-lazy-original", "data-actualsrc", "data-echo", "data-image", "data-high-res-src",
    "data-original-src", "data-interchange",
)  # fmt: skip
LAZY_SETS = ("data-srcset", "data-lazy-srcset", "data-ezsrcset", "data-cfsrcset", "data-flickity-lazyload-srcset")
_NOTHING = re.compile(
    r"\s*(?:(?:data|about|blob|cid|javascript):|[{\[$<#]|(?:null|undefined|none|nan|true|false|\d{0,12})\s*\Z)", re.I
)
_ENDINGS = frozenset("jpg jpeg jfif png gif webp avif bmp tif tiff svg".split())  # noqa: SIM905
UNSIZED = 1_000  # assumed width in pixels if the URL has no size
_STRINGS = re.compile(r'"([^"]+)"')
_LISTED = re.compile(r"\[\s*([^\s,\[\]\"]++)\s*+,")  # Foundation's syntax: [a.jpg, small], [b.jpg, large]
_IN_JSON = re.compile(r'"src"\s*:\s*"([^"]+)"')
_PICTURE = re.compile(r"\.(?:jpe?g|jfif|png|webp|gif|avif|bmp|tiff?)(?:[?#:!@/]|\Z)", re.I)
_LINK = re.compile(r"(?:^|[/.?&])(?:sharer?|intent|tweet|pin|permalink)(?=[/?.=-]|\Z)|\.html?(?:[?#]|\Z)", re.I)
_OTHER = re.compile(  # names of attributes that do not have the image's URL
    r"share|pin|thumb|small|low|tiny|preview|holder|href|fallback|error|^on|^src$|(?:^|-)(?:alt|title|name|style)$"
)
_MAYBE = re.compile(r"data-.*(?:src|url|img|image|orig|lazy)")
_PATH = re.compile(r"\s*[^\s{\[<(]*/")
_PREVIEW = re.compile(
    r"[/_.?&=-](?:(?<=\.)(?:gif|svg)(?:[?#]|\Z)|(?:w|width|q)=\d\d?(?!\d)|(?:blank|spacer|place-?holder|loading|lazy|dummy|"
    r"transparent|pixel|gr[ae]y|1x1|empty|tiny|preview|lqip|blur(?:red)?|low-?(?:res|quality)?)(?![a-z0-9])[^/]*\Z)"
)
_SOURCES = frozenset({"srcset", *LAZY_SETS, *LAZY})
_SURE = _SOURCES - {"data-url", "data-image", "data-lazy"}  # these names may also be links, ids or switches
LETTERS = 100  # last characters of a file's name that are read: searching a size takes quadratic time
DISTINCT = 12  # a file's name of this length or more identifies an image on a page
_SAFE = "%/:=&?~#+!$,;'@()*[]"
# Most URLs match this pattern, and need not be parsed by urllib, which takes ten times as long.
_PLAIN = re.compile(
    r"(https?://[a-z0-9][a-z0-9.-]*(?::[1-9]\d{0,3})?(?=[/?#]|\Z))"
    r"(?:/(?![/.])(?:(?!/\.)[\w./%~,+=&@:!$*()-])*)?(?:\?[\w./%~,+=&:-]+)?",
    re.A,
)
# Possessive quantifiers make this linear in the length of the srcset.
_IN_SET = re.compile(r"[\s,]*+(\S++)\s*+([^,]*+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)[wxh]\b")
# A URL inside the URL of a resizer: /_next/image?url=%2Fk.jpg&w=640 or /image/w=9/https://a.test/k.jpg.
_INNER = re.compile(r"(?:[?&](?:url|src|image|img|u)=|/)((?:https?(?:://|%3a%2f%2f|:/)|%2f|/(?!/))[^&]+)", re.I)
_WIDTHS = (
    "100|120|150|160|200|240|250|300|320|350|360|400|450|480|500|550|600|620|640|650|660|700|720|750|768|780|800|828|"
    "850|900|960|980|1000|1024|1050|1080|1100|1120|1200|1280|1300|1400|1440|1500|1536|1600|1800|1920|2000|2048|2560|3840"
)
_SIZE_OF_NAME = re.compile(
    rf"(?:[-_@.](?:\d{{2,4}}x\d{{0,4}}|x\d{{2,4}}|\d{{2,4}}[wh]|[wh]\d{{2,4}}|[1-4]x|{_WIDTHS}|scaled|thumb(?:nail)?|small|"
    r"medium|large|square|full|[smlbzo]|x{1,2}l|e\d{10,13}))+$|^\d{2,4}px-",
    re.I,
)
_SIZE_OF_PART = re.compile(
    r"(?:(?:w|h|c|q|f|g|s|o|fl|ar|dpr|width|height|max|min|fit|crop|resize|size|quality|format|thumb|smart|filters?)"
    r"(?:[_:=-][\w.:=()-]*+|\d++)?[,;&]?)++|\d{2,4}(?:x\d{2,4})?|(?:\d+_){3}\d+",
    re.I,
)
_SIZES_OF_QUERY = re.compile(
    r"(?:^|[?&/,_=:-])(?:w|wid|width|max|fit|resize|s|imwidth)?[_:=/-]?(\d{2,4})(?=$|[^\d])", re.I
)


def usable(address: str) -> bool:
    """Return True for a URL that may be fetched: http(s), at most 2,000 characters, without user name or password."""
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
    """Return the absolute URL in ASCII, without its fragment. A URL that cannot be parsed is returned unchanged."""
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
    """Return the host (and port, if given) in lower case; empty for URLs without a host."""
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
        return f"{(parts.hostname or '').lower()}{port}"
    except ValueError:
        return ""


def largest(srcset: str) -> str | None:
    """Return the URL with the greatest width or density in a srcset; None if there is no URL."""
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


def sources(attributes: dict[str, str | None], of_sources: Iterable[dict[str, str | None]] = ()) -> str:
    """Return the URL of an image from the attributes of its tag.

    `of_sources`: attributes of each <source> of its <picture>. The attributes are tried in this order: srcset (its
    largest image), attributes for lazy loading such as data-src, src, and <source>. A src that may be the image is
    preferred to a lazy attribute that may be a link. A <source> is preferred to a src that looks like a placeholder.
    """
    source = (attributes.get("src") or "").strip()
    for name in _SOURCES.intersection(attributes) and ("srcset", *LAZY_SETS, *LAZY):
        if (value := attributes.get(name)) and (address := _address(name, value, source)):
            return address
    if not is_nothing(source) and not is_preview(source):
        return source
    others = [(name, value) for name, value in attributes.items() if value and not _OTHER.search(name)]
    late = [_address(name, value, "/") for name, value in others if _MAYBE.match(name) or _PATH.match(value)]
    real = [one for one in (*late, *map(sources, of_sources)) if not is_nothing(one)]
    return min(real, key=lambda one: ".avif" in one, default=source)  # AVIF cannot be read


def _address(name: str, value: str, source: str) -> str:
    """Return the URL in an attribute, which may be JSON.

    The result is empty if the attribute has no URL. It is also empty if the URL may be a link, while `source`, the
    tag's src, may be the image.
    """
    value = (largest(value) or "") if "set" in name else value.strip()
    if value[:1] in ("{", "["):
        value = value[:LONGEST].replace("\\/", "/")
        inner = next(iter(_IN_JSON.findall(value)), "")
        listed = [*_LISTED.findall(value)[::-1], *_STRINGS.findall(value)]  # the last entry is the largest
        value = max(filter(_PICTURE.search, listed), key=width_of, default=inner)
    if is_nothing(value) or _PICTURE.search(value):
        return "" if is_nothing(value) else value
    sure = name in _SURE or is_nothing(source) or is_preview(source)
    return value if sure and ("/" in value or "." in value) and not _LINK.search(value) else ""


def is_nothing(address: str) -> bool:
    """Return True if a value cannot be an image's URL: empty, `null`, `#`, a number, a template or a data URI."""
    return _NOTHING.match(address) is not None


def is_preview(address: str) -> bool:
    """Return True if the URL looks like a placeholder, which is shown until a script has loaded the image."""
    return _PREVIEW.search(address[-2 * LETTERS :].lower()) is not None


def picture_of(address: str) -> str:
    """Return the part that all URLs of an image share: the file name, without size, host, suffix and resizer.

    A short name is ambiguous, so the path is included, without its parts that state the size.
    """
    inner = _INNER.search(address, 9)
    if inner and ("://" in (whole := unquote(inner[1])) or "=" in inner[0][:8]):
        address = whole
    path, _, query = address.partition("?")
    parts = [part for part in path.split("/")[3 if "://" in path[:9] else 0 :] if part]
    name, dot, ending = (parts.pop() if parts else "").rpartition(".")
    if ending.lower() not in _ENDINGS:  # the URL of a program: its query is part of the name
        rest = "&".join(sorted(one for one in query.split("&") if not _SIZE_OF_PART.fullmatch(one)))
        name = f"{name}{dot}{ending}?{rest}" if query else f"{name}{dot}{ending}"
    name = _SIZE_OF_NAME.sub("", name[-LETTERS:]) or name[-LETTERS:]
    if (
        len(parts) > 1 and parts[-1].rpartition(".")[0] and parts[-1] in name + "." + ending
    ):  # /thumb/a/K.jpg/220px-K.jpg
        parts.pop()
    if len(name) >= DISTINCT and not name.isalpha():
        return name.lower()
    return "/".join([*(part for part in parts if not _SIZE_OF_PART.fullmatch(part)), name]).lower()


def width_of(address: str) -> int:
    """Return the largest number in a URL that may be a width (16 to 5,000 pixels); UNSIZED if there is none."""
    return max(
        (size for one in _SIZES_OF_QUERY.finditer(address[-300:]) if 16 <= (size := int(one[1])) <= 5_000),
        default=UNSIZED,
    )
