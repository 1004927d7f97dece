"""URLs of pages and images: check and normalise them, and find the URL of an image among a tag's attributes."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

LONGEST = 2_000
LONGEST_SET = 20_000  # at most this many characters of a srcset are read
LAZY = (
    "data-src", "data-original", "data-lazy-src", "data-lazy", "data-url", "data-hi-res-src", "data-img-src",
    "data-lazyload", "data-cfsrc", "data-ezsrc", "data-hires", "data-orig-file", "data-large-file", "data-full-src",
    "data-flickity-lazyload", "data-lazy-original", "data-actualsrc", "data-echo", "data-image", "data-high-res-src",
    "data-original-src", "data-interchange",
)  # fmt: skip
LAZY_SETS = ("data-srcset", "data-lazy-srcset", "data-ezsrcset", "data-cfsrcset", "data-flickity-lazyload-srcset")
_NOTHING = re.compile(
    r"\s*(?:(?:data|about|blob|cid|javascript):|[{\[$<#]|"
    r"(?:null|undefined|none|nan|true|false|[-+]?\d{0,12}(?:\.\d{0,9})?)\s*\Z)",
    re.I,
)
_ENDINGS = frozenset("jpg jpeg jfif png gif webp avif bmp tif tiff svg".split())  # noqa: SIM905
UNSIZED = 1_000  # width in pixels that is assumed for a URL without a size
_STRINGS = re.compile(r'"([^"]+)"')
_LISTED = re.compile(r"\[\s*([^\s,\[\]\"]++)\s*+,")  # syntax of the library Foundation: [a.jpg, small], [b.jpg, large]
_IN_JSON = re.compile(r'"src"\s*:\s*"([^"]+)"')
_PICTURE = re.compile(r"\.(?:jpe?g|jfif|png|webp|gif|avif|bmp|tiff?)(?:[?#:!@/]|\Z)", re.I)
_LINK = re.compile(r"(?:^|[/.?&])(?:sharer?|intent|tweet|pin|permalink)(?=[/?.=-]|\Z)|\.html?(?:[?#]|\Z)", re.I)
_OTHER = re.compile(  # attributes with such a name do not hold the image's URL
    r"share|pin|thumb|small|low|tiny|preview|holder|href|fallback|error|^on|^src$|(?:^|-)(?:alt|title|name|style)$|"
    r"file-?name|caption|label|desc|(?:^|-)(?:text|html)|^(?:id|class|usemap)$"
)
_LARGER = re.compile(  # attributes in which zoom scripts, galleries and shops name a larger file of the same image
    r"data-(?:.*[-_])?(?:(?:(?:src|img|image)-?)?(?:zoom|full|x?large|big|hi(?:gh)?[-_]?res|orig|magnif|retina|hd|real|raw)|"
    r"at2x|rjs|photo|ima?ge?[-_]?(?:src|url))|zoomfile\Z"
)
_OF_HTML = frozenset("src srcset alt class width height loading id style title decoding sizes border itemprop".split())  # noqa: SIM905
_MAYBE = re.compile(r"data-.*(?:src|url|img|image|orig|lazy|full|large|zoom|hi(?:gh)?-?res|retina|photo|defer)")
_LIKE_SET = re.compile(r"\s*+\S++\s++\d+(?:\.\d+)?[wx](?:\s*,|\s*\Z)")
_MAYBE_URL = re.compile(  # a path or a file name, or several as in a srcset
    r"\s*[^\s{\[<(/\\]*[/\\]|\s*[^\s{\[<(]{1,300}\.(?:jpe?g|png|webp|gif|avif)(?:\?\S*)?(?:\s*\Z|\s+\d+[wx]\s*,)", re.I
)
_PREVIEW = re.compile(
    r"[/_.?&=-](?:(?<=\.)(?:gif|svg)(?:[?#]|\Z)|(?:w|width|q)=\d\d?(?!\d)|(?:blank|spacer|place-?holder|loading|lazy|dummy|"
    r"transparent|pixel|gr[ae]y|1x1|empty|tiny|preview|lqip|blur(?:red)?|low-?(?:res|quality)?)(?![a-z0-9])[^/]*\Z)"
)
_RANKS = {name: rank for rank, name in enumerate(("srcset", *LAZY_SETS, *LAZY))}
_SOURCES = frozenset(_RANKS)
_RESIZED = frozenset({"data-widths", "data-sizes"})  # attributes of an image whose size a script chooses
_SURE = _SOURCES - {"data-url", "data-image", "data-lazy"}  # these three may also hold a link, an id or a switch
# Placeholders that a script fills: {width} of lazysizes' plugin RIaS, or the syntax of a template engine.
_TEMPLATE = re.compile(r"(?:\{|%7b)(?:\s|%20)*+([a-z_][\w.]{0,30})(?:\s|%20)*+(?:\}|%7d)", re.I)
_ENGINE = re.compile(r"\{[{%]|\$\{|<%|%7b%7b|\$%7b", re.I)
WIDEST = 5_000  # a larger width in `data-widths` is not chosen if a smaller one is listed
RIAS_WIDTH = 3_024  # the largest of the widths that RIaS uses if `data-widths` is missing
_RATIO = re.compile(r"\s*(\d{1,5}(?:\.\d{1,9})?)\s*(?:[/:]\s*(\d{1,5}(?:\.\d{1,9})?)\s*)?")
_WIDTHS_OF = re.compile(r"(?<![\d.])\d{1,6}(?!\d)")
_SCALAR = re.compile(r"(?!true\Z|false\Z)[\w.,:=+-]{1,60}")
_CONTROLS = "".join(map(chr, range(33)))  # browsers remove these characters at both ends of a URL
_BREAKS = dict.fromkeys((9, 10, 13))
_SLASHES = re.compile(r"(https?:|)//+", re.I)
LETTERS = 100  # a size is searched only in this many last characters of a file name, as this takes quadratic time
DISTINCT = 12  # a file name of at least this many characters identifies an image on a page
_SAFE = "%/:=&?~#+!$,;'@()*[]"
# Most URLs match this pattern, and need not be parsed by urllib, which takes ten times as long.
_PLAIN = re.compile(
    r"(https?://[a-z0-9][a-z0-9.-]*(?::[1-9]\d{0,3})?(?=[/?#]|\Z))"
    r"(?:/(?![/.])(?:(?!/\.)[\w./%~,+=&@:!$*()-])*)?(?:\?[\w./%~,+=&:-]+)?",
    re.A,
)
# Possessive quantifiers make the time linear in the length of the srcset.
_IN_SET = re.compile(r"[\s,]*+(\S++)\s*+([^,]*+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)[wxh]\b")
# A URL inside the URL of a resizing service: /_next/image?url=%2Fk.jpg&w=640 or /image/w=9/https://a.test/k.jpg.
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
_WIDTH_OF_QUERY = re.compile(r"(?:^|&)(?:w|wid|width|imwidth)=(\d{1,4})(?=&|$)", re.I)
SMALL = 300  # pixels


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
    address = cleaned(address)
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


def cleaned(address: str) -> str:
    """Return a URL as browsers read it: slashes for backslashes, no line breaks, no spaces at its ends.

    In JSON and data URIs, only the spaces at both ends are removed.
    """
    address = address.strip()
    if (address.isprintable() and "\\" not in address and "///" not in address[:9]) or address[:1] in ("{", "["):
        return address
    address = address.strip(_CONTROLS).translate(_BREAKS)
    if address[:5].lower() == "data:":
        return address
    path = re.split(r"[?#]", address, maxsplit=1)[0]
    rest = address[len(path) :]
    path = path.replace("\\", "/")
    start = _SLASHES.match(path)
    return (f"{start[1]}//{path[start.end() :]}" if start else path) + rest


def filled(value: str, attributes: Mapping[str, str | None]) -> str:
    """Return the value of an attribute after filling its placeholders, such as {width}, like the plugin RIaS.

    `attributes`: the tag's attributes. A placeholder remains if its value is not known.
    """
    if ("{" not in value and "%7" not in value) or _ENGINE.search(value := value[:LONGEST_SET]):
        return value
    width = _width_for(attributes)

    def replacement(match: re.Match[str]) -> str:
        name = match[1].lower()
        if name == "width":
            mapped = (attributes.get("data-widthmap") or "")[:LONGEST]
            alias = re.search(rf'(?<!\d){width}"?\s*:\s*"([\w.-]+)"', mapped)
            return alias[1] if alias else str(width)
        sides = _RATIO.fullmatch(attributes.get("data-aspectratio") or attributes.get("data-aspect-ratio") or "")
        if name == "height" and sides and float(sides[1]) and float(sides[2] or 1):
            return str(round(width * float(sides[2] or 1) / float(sides[1])))
        value = _SCALAR.fullmatch((attributes.get(f"data-{name}") or "").strip())
        return value[0] if value else match[0]

    if any(one[1].lower() == "width" for one in _TEMPLATE.finditer(value)):
        value = f"{attributes.get('data-prefix') or ''}{value.strip()}{attributes.get('data-postfix') or ''}"
    return _TEMPLATE.sub(replacement, value[:LONGEST_SET])


def _width_for(attributes: Mapping[str, str | None]) -> int:
    """Return the largest of a tag's `data-widths` up to WIDEST, else its `data-width`, else RIAS_WIDTH."""
    widths = [int(one) for one in _WIDTHS_OF.findall((attributes.get("data-widths") or "")[:LONGEST])]
    own = _WIDTHS_OF.fullmatch((attributes.get("data-width") or "").strip())
    least = min(filter(None, widths), default=int(own[0]) if own else 0)
    return max((one for one in widths if one <= WIDEST), default=least) or RIAS_WIDTH


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
    srcset = srcset[:LONGEST_SET]
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


def sources(
    attributes: dict[str, str | None], of_sources: Iterable[dict[str, str | None]] = (),
    options: Mapping[str, str | None] = MappingProxyType({}),
) -> str:  # fmt: skip
    """Return the URL of an image from the attributes of its tag.

    `of_sources`: attributes of each <source> of its <picture>. `options`: the attributes of the <img>, if the tag is
    such a <source>. The attributes are tried in this order: srcset (its largest image), attributes for lazy loading
    such as data-src, src, and <source>. A src that may be the image is preferred to a lazy attribute that may be a
    link. A <source> is preferred to a src that looks like a placeholder.
    """
    known = {**options, **attributes} if options else attributes
    source = cleaned(attributes.get("src") or "")
    if " " in source and _LIKE_SET.match(source):  # <noscript> copies of some sites have the srcset in src
        source = largest(source) or ""
    if ("{" in source or "%7" in source) and not _RESIZED.isdisjoint(known):
        source = filled(source, known)
    lazy = _SOURCES.intersection(attributes)
    for name in lazy and sorted(lazy, key=_RANKS.__getitem__):
        if (value := attributes.get(name)) and (address := _address(name, filled(value, known), source)):
            return address
    shown = not is_nothing(source) and not is_preview(source)
    if shown and _OF_HTML.issuperset(attributes):
        return source
    names = [one for one in attributes if not shown or _LARGER.match(one)]
    others = [(one, filled(value, known)) for one in names if (value := attributes[one]) and not _OTHER.search(one)]
    if shown:
        return next(filter(None, (_address(*one, "/") for one in others)), source)
    late = [_address(*one, "/") for one in others if _MAYBE.match(one[0]) or _MAYBE_URL.match(one[1])]
    late += [sources(one, options=attributes) for one in of_sources]
    real = [one for one in late if not is_nothing(one)]
    return min(real, key=lambda one: ".avif" in one, default=source)  # AVIF last, because such files are dropped later


def _address(name: str, value: str, source: str) -> str:
    """Return the URL in an attribute, which may be JSON.

    The result is empty if the attribute has no URL. It is also empty if the URL may be a link, while `source`, the
    tag's src, may be the image.
    """
    value = (largest(value) or "") if "set" in name or _LIKE_SET.match(value) else value.strip()
    if value[:1] in ("{", "["):
        value = value[:LONGEST].replace("\\/", "/")
        inner = next(iter(_IN_JSON.findall(value)), "")
        # Reversed, because Foundation lists the largest image last.
        listed = [*_LISTED.findall(value)[::-1], *_STRINGS.findall(value)]
        value = max(filter(_PICTURE.search, listed), key=width_of, default=inner)
    value = cleaned(value)
    if is_nothing(value) or _PICTURE.search(value):
        return "" if is_nothing(value) else value
    sure = name in _SURE or is_nothing(source) or is_preview(source)
    return value if sure and ("/" in value or "." in value) and not _LINK.search(value) else ""


def is_nothing(address: str) -> bool:
    """Return True if a value cannot be an image's URL: empty, `null`, `#`, a number, a template or a data URI."""
    if "{" in address or "%7" in address or "<%" in address:
        start = address[:LONGEST]
        return any(one.search(start) for one in (_TEMPLATE, _ENGINE)) or _NOTHING.match(address) is not None
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
    if ending.lower() not in _ENDINGS:  # a script's URL, such as image.php?id=7, has the image's id in its query
        rest = "&".join(sorted(one for one in query.split("&") if not _SIZE_OF_PART.fullmatch(one)))
        name = f"{name}{dot}{ending}?{rest}" if query else f"{name}{dot}{ending}"
    name = _SIZE_OF_NAME.sub("", name[-LETTERS:]) or name[-LETTERS:]
    if (
        len(parts) > 1 and parts[-1].rpartition(".")[0] and parts[-1] in name + "." + ending
    ):  # such as /thumb/a/K.jpg/220px-K.jpg
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


def is_small(address: str) -> bool:
    """Return True for a URL that states a width below SMALL pixels, in its query or else anywhere."""
    _, _, query = address.partition("?")
    stated = _WIDTH_OF_QUERY.findall(query)
    return (max(map(int, stated)) if stated else width_of(address)) < SMALL
