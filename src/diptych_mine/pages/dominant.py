"""Score how likely an image is the dominant one of its page, from its tags and ancestors (ImageBERT, section 3).

Features and weights are ours. They were set by hand on the even-numbered page templates of the test web. The
odd-numbered templates are held out.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from diptych.runtime.files import text_of

WEIGHTS = {
    "large": 2.0,  # width and height attributes are both 300 pixels or more
    "small": -4.0,  # width or height attribute is below 100 pixels
    "medium": -1.0,  # width or height attribute is below 200 pixels
    "article": 1.5,  # in <article> or <main>, or role=main
    "figure": 1.5,
    "figcaption": 0.5,
    "shared": 3.0,  # also in og:image, twitter:image or schema.org's image
    "aside": -3.0,  # in <header>, <nav>, <footer> or <aside>, or in a tag with a class of this meaning
    "link": -1.0,  # inside an <a> that does not link to an image
    "zoom": 0.5,  # inside an <a> that links to an image
    "hero": 1.5,  # class or id such as hero, featured, main-image
    "name": -4.0,  # class, id or URL such as logo, icon, avatar
    "alike": -3.0,  # one of three or more images of the same size in a list
    "first": 1.0,  # the first image that is in an article or figure and has no negative features
    "order": -0.25,  # per image before it on the page, up to eight
}
NEAR = 3  # the classes of this many ancestors are read for `hero` and `alike`
LEVELS = 14  # at most this many ancestors of a tag are read, because tags may be nested deeply
LETTERS = 1_000  # at most this many characters of a tag's classes, and of its id, are read

_ASIDE_TAGS = frozenset({"header", "nav", "footer", "aside"})
_DENIED = ("has-", "no-", "with-", "without-", "is-", "hide-", "not-")
_PARTS, _ALSO_PHOTOS = (  # names of folders or files in a URL, each matched as a whole; then those of photographs too
    re.compile(
        rf"/(?:(?:{whole})(?:[-_.@]?\d+x?\d*)?|[^/?]*[-_](?:{part})|(?:{part})[-_][^/?]*)(?:\.\w{{2,4}})?(?=[/?#]|$)",
        re.I,
    )
    for whole, part in (
        ("logos?|sprites?|avatars?|gravatar|spacer|blank|spinner|placeholder|tracking|favicons?|ads?|adverts?|1x1",
         "logo|avatar|favicon|sprite|spacer|placeholder|spinner|btn"),
        ("icons?|banners?|pixel|badges?|buttons?|btn|emojis?|smilies|smil(?:ey|ie)s?|arrow|loading|flags?|star|rating",
         "icon"),
    )
)  # fmt: skip
_NAMED = re.compile(r"(?:[\w.'&-]+ ){0,5}(?:logo|avatar)|avatar (?:of|for) .{1,60}|advertisement", re.I)
_NAMED_ICON = re.compile(r"(?:[\w.'&-]+ ){0,5}icon", re.I)
_JPEG = re.compile(r"\.jpe?g(?:[?#]|$)", re.I)
MOST_TEXT, MOST_PARAGRAPHS = 20_000, 500  # a wrapper of the page holds half of its first characters and paragraphs
LONG = 60  # a paragraph of fewer characters does not begin the text of a page
_DIMENSION = re.compile(r"[ \t\n\f\r]*0*([0-9]{1,6})(?![0-9])(?:\.[0-9]*)?(%)?")
_AGAINST = frozenset({"small", "medium", "aside", "link", "name", "alike"})
_FOR = frozenset({"article", "figure", "hero"})
_PICTURE = re.compile(r"\.(?:jpe?g|png|webp|gif)(?:[?#]|$)", re.I)


@dataclass
class Features:
    """The features of an <img>.

    `values`: name in WEIGHTS -> value. `declared`: the width and height attributes in pixels.
    """

    values: dict[str, float]
    declared: tuple[int | None, int | None]
    likeness: tuple[Any, ...] = ()  # equal for images of the same list
    figure: Any = None

    @property
    def score(self) -> float:
        return sum(WEIGHTS[name] * value for name, value in self.values.items())


def features(node: Any, attributes: dict[str, str | None], order: int, address: str, around: "Ancestors") -> Features:
    """Return the features of an <img>. `order`: number of images before it on the page. `address`: its URL."""
    declared = _side(attributes, "width"), _side(attributes, "height")
    known = [side for side in declared if side is not None]
    least = min(known, default=200)
    called = called_by(classes(attributes))
    flags = {
        "small": least < 100 or pixels(attributes.get("width")) == pixels(attributes.get("height")) == 0,
        "medium": 100 <= least < 200, "large": len(known) == 2 and least >= 300,
        "name": "name" in called or is_name(address, (attributes.get("alt") or "")[:80], min(known, default=None)),
        "hero": "hero" in called, "shared": (attributes.get("itemprop") or "").lower() in ("image", "contenturl"),
    }  # fmt: skip
    values = {name: 1.0 for name, true in flags.items() if true} | {"order": min(order, 8)}
    inside = around.of(node.parent)
    values |= dict.fromkeys(inside.values, 1.0)
    if inside.hero < NEAR:
        values["hero"] = 1.0
    return Features(values, declared, (*inside.signature, *declared), inside.figure)


def is_name(address: str, alt: str = "", least: int | None = None) -> bool:
    """Return True if the URL or the alt text names a logo, an icon or the like.

    `least`: the shorter known side in pixels. Folders do not count for images of 300 pixels or more. Names that
    photographs have too, such as `flags`, count for images below 200 pixels, and for those of unknown size but JPEG.
    """
    part = _PARTS.search(address, 8)
    if (part and (least is None or least < 300 or address[part.end() : part.end() + 1] != "/")) or _NAMED.fullmatch(
        alt
    ):
        return True
    small = least < 200 if least is not None else not _JPEG.search(address)
    return small and bool(_ALSO_PHOTOS.search(address, 8) or _NAMED_ICON.fullmatch(alt))


@dataclass(frozen=True, slots=True)
class Around:
    """Features of a tag and its ancestors.

    `hero`: number of tags between the tag and an ancestor with a class such as `hero`.
    """

    values: frozenset[str] = frozenset()
    hero: int = LEVELS
    figure: Any = None
    signature: tuple[str, ...] = ()


@dataclass
class Ancestors:
    """The tags around the images of a page. Each tag is read once."""

    known: dict[int, Around] = field(default_factory=dict)
    held: Counter[int] | None = None  # id of a tag -> characters of the page's first paragraphs in it
    lengths: list[int] = field(default_factory=list)  # characters of each of these paragraphs
    first: set[int] = field(default_factory=set)  # ids of the first one and of the tags around it

    def of(self, node: Any) -> Around:
        """Return the features of `node` and its ancestors. At most LEVELS tags that were not read before are read."""
        unknown, around = [], Around()
        for _ in range(LEVELS):
            if node is None or node.tag in ("body", "html", None):
                break
            if (known := self.known.get(node.mem_id)) is not None:
                around = known
                break
            unknown.append(node)
            node = node.parent
        for node in reversed(unknown):
            around = self.known[node.mem_id] = _inside(node, around, self)
        return around

    def hold_page(self, node: Any) -> bool:
        """Return True for a tag around the page's text. The class of this tag describes the page, not an image.

        It is around <main>, or a heading and a paragraph, or half of the page's text including its first paragraph.
        """
        if self.held is None:
            self._read_paragraphs(node.parser.css("p"))
        half = self.held is not None and 2 * self.held[node.mem_id] >= sum(self.lengths) > 0
        if half and node.mem_id in self.first:
            return True
        if node.css_first("main, h1") is None:  # the next selector takes quadratic time for nested tags
            return False
        return half or node.css_first("main, h1 + p, h1 ~ * p") is not None

    def _read_paragraphs(self, paragraphs: list[Any]) -> None:
        self.held = Counter()
        for one in paragraphs[:MOST_PARAGRAPHS]:
            length = len(one.text(deep=True).strip())
            outer = one if self.lengths or length >= LONG else None
            self.lengths += [length] if outer is not None else []
            while outer is not None:
                self.held[outer.mem_id] += length
                self.first |= {outer.mem_id} if len(self.lengths) == 1 else set()
                outer = outer.parent
            if sum(self.lengths) > MOST_TEXT:
                break


def _inside(node: Any, outer: Around, page: Ancestors) -> Around:
    """Return the features of a tag, given the features of the tags around it."""
    attributes, tag = node.attributes, node.tag
    called = classes(attributes) if attributes else ""
    names = called_by(called) if called else ()
    values = set(outer.values)
    if tag in ("article", "main") or attributes.get("role") == "main":
        values.add("article")
    elif tag == "figure":
        values.add("figure")
    elif tag in _ASIDE_TAGS:
        if tag != "header" or "article" not in values:
            values.add("aside")
    elif tag == "a":
        values -= {"link", "zoom"}
        values.add("zoom" if _PICTURE.search(attributes.get("href") or "") else "link")
    if "aside" in names and "aside" not in values and not page.hold_page(node):
        values.add("aside")
    figure = node if tag == "figure" else outer.figure
    hero = 0 if "hero" in names else outer.hero + (tag not in ("a", "td", "tr", "tbody"))
    return Around(frozenset(values), hero, figure, (f"{tag}.{called}", *outer.signature[: NEAR - 1]))


def classes(attributes: dict[str, str | None]) -> str:
    """Return a tag's classes and id, cut to LETTERS characters each, because they are stored for each image."""
    return f"{(attributes.get('class') or '')[:LETTERS]} {(attributes.get('id') or '')[:LETTERS]}".strip()


@lru_cache(10_000)
def called_by(name: str) -> tuple[str, ...]:
    """Return the kinds (`aside`, `hero`, `name`) of the classes and id in `name`.

    Results are cached, because pages of a site share classes.
    """
    kinds = set()
    for token in name.lower().replace("__", "-").replace("_", "-").split():
        if not token.startswith(_DENIED):
            kinds |= {what for what, pattern in _CALLED.items() if pattern.match(token)}
    return tuple(kinds)


_PREFIX = "(?:(?:c|l|m|o|js|u|td|wp|post|entry|article|site|page|block)-)?"
_NAMES = dict(line.split(": ") for line in text_of(Path(__file__).with_name("class_names.txt")).splitlines())
_CALLED = {  # kind -> pattern of a class or id, such as hero, hero-box or top-hero
    what: re.compile(f"{_PREFIX}(?:{_NAMES[what]})(?:-|s?$)|.*-(?:{_NAMES[what + ' at the end']})$")
    for what in ("aside", "hero", "name")
}


def mark_lists(of_page: list[Features]) -> None:
    """Mark the images of lists, and then the first image that may be the dominant image.

    A list has three or more images of equal size whose ancestors have the same classes.
    """
    counts = Counter(one.likeness for one in of_page)
    for one in of_page:
        if counts[one.likeness] >= 3 and "shared" not in one.values:
            one.values["alike"] = 1
    shared = (one for one in of_page if "shared" in one.values)
    plain = (one for one in of_page if not _AGAINST & one.values.keys() and _FOR & one.values.keys())
    first = next(shared, None) or next(plain, None)
    if first is not None:
        first.values["first"] = 1


def merged(copies: list[Features]) -> Features:
    """Merge the features of several tags of an image.

    Positive features are kept if any tag has them, negative features if all tags have them.
    """
    if len(copies) == 1:
        return copies[0]
    names = {name for one in copies for name in one.values if WEIGHTS[name] > 0}
    names |= set.intersection(*(set(one.values) for one in copies))
    best = max(copies, key=lambda one: (one.declared[0] or 0) * (one.declared[1] or 0))
    values = {name: min(one.values.get(name, 1.0) for one in copies) for name in names}
    figure = next((one.figure for one in copies if one.figure is not None), None)
    return Features(values, best.declared, best.likeness, figure)


def pixels(value: str | None) -> int | None:
    """Return an attribute's number of pixels by HTML's rule for dimensions; None for per cent or no number."""
    if value and len(value) < 7 and value.isascii() and value.isdigit():
        return int(value)
    match = _DIMENSION.match(value) if value else None
    return int(match[1]) if match and not match[2] else None


def _side(attributes: dict[str, str | None], name: str) -> int | None:
    if (value := pixels(attributes.get(name))) is not None:
        return value or None
    style = attributes.get("style") or ""
    match = re.search(rf"(?<![\w-]){name}\s*:\s*(\d{{1,5}})(?:\.\d+)?px", style) if style else None
    return int(match[1]) if match else None
