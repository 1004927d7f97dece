"""List the images of a page and of its metadata. An image is listed once, even if it has several tags and URLs."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from diptych_mine.pages import addresses
from diptych_mine.pages.dominant import Ancestors, Features, features, is_name, mark_lists, merged, pixels
from diptych_mine.pages.texts import unescaped

Meta = dict[str, str | None]

SHARED = ("og:image", "og:image:url", "og:image:secure_url", "twitter:image", "twitter:image:src")
LONGEST_JSON = 500_000  # a JSON-LD script of more characters is ignored
MOST_NODES = 2_000  # at most this many nodes of a JSON-LD script are read
SMALL = 200  # an image with a side of fewer pixels is an icon or a preview
MANY = 3  # `itemprop` is ignored if at least this number of images have it
MOST_EMPTY = 8  # at most this many tags without text may be between an image and its <noscript>
CLIMB = 2  # a copy is searched next to an image, and next to this many of its ancestors
_BACKGROUND = re.compile(r"url\(\s*[\"']?([^\"')]{1,2000})", re.I)
_CSS_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|([^\n]))", re.I)
FOLDS = frozenset({"noscript", "template"})  # tags that may hold a copy of the image before them
_BACKGROUNDS = ("data-bg", "data-background", "data-background-image", "data-bg-image")
BACKGROUNDS = ", ".join(['[style*="url("]', *(f"[{name}]" for name in _BACKGROUNDS)])
_OF_SITE = re.compile(
    r"logo|default|placeholder|fallback|favicon|avatar|share|social|blank|facebook|twitter|og[-_](?:image|card)|open-?graph"
    r"|touch-icon|headshots?|(?:^|[/_-])(?:fb|card|brand(?:ing)?|authors?|profiles?)(?=[-_./]|$)|\.(?:svg|ico)$|[-_/]1?\d\d?x1?\d\d?(?!\d)",
    re.I,
)
TRUSTED = 3.0  # the only shown image that a page shares may score this much less than the best one
_NO_ARTICLE = frozenset({"organization", "person", "website", "brand", "imageobject", "newsmediaorganization"})


@dataclass
class PagePicture:
    """An image of a page.

    `copies`: indices of its tags. `best`: the tag of the largest file. `address`: the URL of this file.
    """

    copies: list[int]
    best: int
    address: str
    seen: Features
    texts: list[tuple[str, str]] = field(default_factory=list)  # (kind, text) from metadata

    @property
    def score(self) -> float:
        return self.seen.score


@dataclass
class Shared:
    """The images and texts in the metadata of a page. `addresses`: name of an image (`picture_of`) -> its URL."""

    addresses: dict[str, str] = field(default_factory=dict)
    small: set[str] = field(default_factory=set)  # names of those whose metadata state a side below SMALL pixels
    texts: list[tuple[str, str]] = field(default_factory=list)
    title: str = ""

    @classmethod
    def of(cls, base: str, metas: Iterable[Meta], scripts: Iterable[Any]) -> "Shared":
        """Read images from og:image, twitter:image and JSON-LD, and texts from og:image:alt, captions and og:title."""
        shared, title, last = cls(), "", ""
        for meta in metas:
            name, content = (meta.get("property") or meta.get("name") or "").lower(), meta.get("content") or ""
            if name in SHARED:
                last = shared.add(base, content)
            elif name in ("og:image:width", "og:image:height") and (pixels(content) or SMALL) < SMALL:
                shared.small.add(last)
            elif name in ("og:image:alt", "twitter:image:alt"):
                shared.texts.append(("alt", content))
            elif name == "og:title":
                title = title or content
        for script in scripts:
            for image in _images_of(script.text() or ""):
                shared.add(base, str(image.get("url") or image.get("contentUrl") or ""))
                shared.texts += [
                    ("figcaption", unescaped(str(image.get(one) or ""))) for one in ("caption", "description")
                ]
        shared.title = title
        return shared

    def candidate(self, shown: Sequence[PagePicture], number: int) -> PagePicture | None:
        """Return the image that only the metadata name, if there is one.

        It must not look like an icon, the head of an author, or the card of a site. `number`: the index that the image
        gets.
        """
        own = [one for name, one in self.addresses.items() if name not in self.small and _is_of_page(one)]
        if not own or any("shared" in one.seen.values for one in shown):
            return None
        seen = Features({"shared": 1.0, "order": 0.0}, (None, None))
        return PagePicture([number], number, own[0], seen, [*self.texts, ("title", self.title)])

    def add(self, base: str, address: str) -> str:
        """Add the URL of an image, and return its name; empty if it is not a URL."""
        if addresses.is_nothing(address):
            return ""
        where = addresses.absolute(base, address)
        name = addresses.picture_of(where)
        self.addresses.setdefault(name, where)
        return name

    def enlarge(self, one: PagePicture) -> str:
        """Return the URL of a shown image, or that of its larger file if the page shows a preview of a shared image."""
        large = self.addresses.get(addresses.picture_of(one.address), one.address)
        small = addresses.is_small(one.address) or addresses.is_preview(one.address)
        return large if small and not addresses.is_small(large) else one.address


def _is_of_page(address: str) -> bool:
    where = address.partition("://")[2]
    site = _OF_SITE.search(where.partition("?")[0].partition("/")[2]) or where.startswith("opengraph.")
    return not (site or is_name(address))


def _images_of(text: str) -> Iterator[dict[str, Any]]:
    """Yield the images of articles, products and recipes in a JSON-LD script, each with its `url`."""
    if ('"image' not in text and "primaryimage" not in text) or len(text) > LONGEST_JSON:
        return
    try:
        waiting = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    for _ in range(MOST_NODES):
        if not waiting:
            break
        node = waiting.pop(0)
        if isinstance(node, list):
            waiting += node[:50]
        if not isinstance(node, dict):
            continue
        waiting += [node[key] for key in ("@graph", "mainEntity") if key in node]
        kind = str(node.get("@type") or "").lower()
        if kind == "imageobject" and str(node.get("@id")).endswith("#primaryimage"):
            yield node
        elif kind not in _NO_ARTICLE and "image" in node:
            images = node["image"]
            for one in (images if isinstance(images, list) else [images])[:10]:
                yield one if isinstance(one, dict) else {"url": one if isinstance(one, str) else ""}


def has_background(node: Any) -> bool:
    """Return True for a tag with a background image, in its style or in an attribute such as data-bg."""
    attributes = node.attributes
    return "url(" in (attributes.get("style") or "") or any(name in attributes for name in _BACKGROUNDS)


def source_of(node: Any) -> str:
    """Return the URL in an image's tag, which may be a data URI; empty if the tag has no URL."""
    attributes = node.attributes
    if node.tag in ("img", "amp-img"):
        parent = node.parent
        inside = parent is not None and parent.tag == "picture"
        address = addresses.sources(attributes, (one.attributes for one in parent.css("source")) if inside else ())
    else:
        style = (attributes.get("style") or "")[:4_000]
        address = style if "url(" in style else next(filter(None, map(attributes.get, _BACKGROUNDS)), "") or ""
        if match := _BACKGROUND.search(address):
            address = _CSS_ESCAPE.sub(lambda one: one[2] or chr(min(int(one[1], 16), 0xFFFD)), match[1])
        address = addresses.filled(address, attributes)
    return address if address[:5].lower() == "data:" or not addresses.is_nothing(address) else ""


def candidates(nodes: Sequence[Any], places: Sequence[str], shared: Shared) -> list[PagePicture]:
    """Return the images of a page in order.

    `nodes`: their tags, `places`: their URLs. A tag without a URL is used only as a copy of another tag's image.
    """
    around = Ancestors()
    names = [addresses.picture_of(where) if where and where[:5] != "data:" else "" for where in places]
    groups: dict[str, list[int]] = {}
    twins = [_twin(nodes, names, places, number) for number in range(len(nodes))]
    for number in range(len(nodes)):
        root = number
        while (twin := twins[root]) is not None:  # go from a preview to the tag of the full image
            root = twin
        if name := names[root]:
            groups.setdefault(name, []).append(number)
    pictures, by_tag = [], list[Features]()
    for name, copies in groups.items():
        seen = [features(nodes[one], nodes[one].attributes, one, places[one], around) for one in copies]
        real = [one for one in copies if names[one] == name]
        best = max(real, key=lambda one: (addresses.width_of(places[one]), -one)) if len(real) > 1 else real[0]
        texts, one = [], merged(seen)
        if name in shared.addresses:
            one.values["shared"], texts = 1, shared.texts
        elif "shared" in one.values:
            by_tag.append(one)
        pictures.append(PagePicture(copies, best, places[best], one, texts))
    for one in by_tag if len(by_tag) >= MANY else ():  # if many images have `itemprop`, it does not mark the main one
        del one.values["shared"]
    mark_lists([one.seen for one in pictures])
    return pictures


def _twin(nodes: Sequence[Any], names: Sequence[str], places: Sequence[str], number: int) -> int | None:
    """Return the index of a tag that has the same image as the tag `number`, else None.

    This tag may be in the next <noscript>, or next to a preview.
    """
    node, after = nodes[number], number + 1
    while after < min(len(nodes), number + 4) and not names[after] and not _fold(nodes[after]):
        after += 1  # skip tags without a URL
    fold = _fold(nodes[after]) if after < len(nodes) and names[after] and not _fold(node) else ""
    preview = names[number] and addresses.is_preview(places[number]) and not _fold(node)
    # A <noscript> holds a copy of the image before it. A <template> may hold other images, such as those of a slider.
    copied = fold == "noscript" or (fold and (preview or not names[number]))
    if copied and _follows(node, nodes[after]):
        return after
    for other in (after, number - 1) if preview else ():
        if 0 <= other < len(nodes) and names[other] and not addresses.is_preview(places[other]):
            alts = {alt for one in (node, nodes[other]) if (alt := (one.attributes.get("alt") or "").strip())}
            if len(alts) < 2 and not _around(node).isdisjoint(_around(nodes[other])):
                return other
    return None


def _follows(node: Any, other: Any) -> bool:
    """Return True if a <noscript> or <template> with the tag `other` follows `node` or one of its ancestors.

    Only tags without text may be between them.
    """
    if 1 in (pixels(other.attributes.get("width")), pixels(other.attributes.get("height"))):  # a tracking pixel
        return False
    for _ in range(CLIMB + 1):
        following, left = node.next, MOST_EMPTY
        while following is not None and left and following.tag not in FOLDS and not following.text(deep=True).strip():
            following, left = following.next, left - 1
        if following is not None:
            return following.tag in FOLDS and following.mem_id in _around(other)
        if (node := node.parent) is None:
            break
    return False


def _around(node: Any) -> set[int]:
    """Return the ids of the parent and grandparent tags of an image, except tags like <body> and <article>."""
    outer = (node.parent, node.parent and node.parent.parent)
    return {one.mem_id for one in outer if one is not None and one.tag not in ("body", "article", "main", "section")}


def _fold(node: Any) -> str:
    """Return the tag of FOLDS around an image's tag; empty if there is none."""
    outer = (node.parent, node.parent and node.parent.parent)
    return next((one.tag for one in outer if one is not None and one.tag in FOLDS), "")


def leading(pictures: Sequence[PagePicture], least: float) -> tuple[PagePicture | None, float]:
    """Return the candidate with the highest score, and its lead over the second (99 if there is no second).

    If only one candidate is shared, it is returned instead, with a lead of 99, unless its score is below `least` or far
    below the highest.
    """
    ranked = sorted(pictures, key=lambda one: -one.score)
    if not ranked:
        return None, 0.0
    shared = [one for one in ranked if "shared" in one.seen.values]
    if len(shared) == 1 and shared[0].score >= max(least, ranked[0].score - TRUSTED):
        return shared[0], 99.0
    return ranked[0], round(ranked[0].score - ranked[1].score, 4) if len(ranked) > 1 else 99.0
