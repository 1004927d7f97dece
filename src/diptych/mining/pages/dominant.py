"""Scores of how much an image looks like the subject of its page, from tags and ancestors (ImageBERT, section 3).

Features and weights are ours: one table, set by hand on the even page templates of the test web, never on the odd ones.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

WEIGHTS = {
    "large": 2.0,  # both declared sides of 300 pixels or more
    "small": -4.0,  # a declared side under 100
    "medium": -1.0,  # a declared side under 200
    "article": 1.5,  # in <article> or <main>, or role=main
    "figure": 1.5,
    "figcaption": 0.5,
    "shared": 3.0,  # og:image, twitter:image, schema.org's image
    "aside": -3.0,  # in <header>, <nav>, <footer> or <aside>, or in a part with such a name
    "link": -1.0,  # inside <a>, unless that leads to an image
    "zoom": 0.5,  # inside <a> that leads to an image
    "hero": 1.5,  # named hero, featured, main-image, ...
    "name": -4.0,  # named logo, icon, avatar, ...
    "alike": -3.0,  # of three or more of one size in one list
    "order": -0.25,  # for each image before it, up to eight
}
LEVELS = 14  # of ancestors that are read: a page may be 10,000 deep
LETTERS = 1_000  # of a tag's classes, and of its id

_ASIDE_TAGS = frozenset({"header", "nav", "footer", "aside"})
_ASIDE = re.compile(
    r"(?<![a-z])(?:sidebar|related|recommend\w*|comments?|footer|masthead|navbar|menu|widget|advert\w*|"
    r"ads?|promo|sponsor\w*|share|social|author|byline|breadcrumbs?|more-from|also-like)(?![a-z])",
    re.I,
)
_HERO = re.compile(
    r"(?<![a-z])(?:hero|featured?|lead|main[-_]?(?:image|photo|pic)|post[-_]?(?:image|thumbnail)|"
    r"wp-post-image|article[-_]?image|entry[-_]?image|cover|full(?:image|size))(?![a-z])",
    re.I,
)
_NAMES = re.compile(
    r"(?<![a-z])(?:logos?|icons?|sprites?|avatars?|gravatar|banners?|pixel|badges?|buttons?|btn|emojis?|"
    r"smil(?:ey|ies)|spacer|blank|arrow|loading|spinner|placeholder|tracking|favicon|flags?|star|rating|"
    r"thumbs?|ads?|advert\w*)(?![a-z])",
    re.I,
)
_PICTURE = re.compile(r"\.(?:jpe?g|png|webp|gif)(?:[?#]|$)", re.I)


@dataclass
class Features:
    """The features of one <img>: `values` by their names in WEIGHTS, and `declared` width and height in pixels."""

    values: dict[str, float]
    declared: tuple[int | None, int | None]
    likeness: tuple[Any, ...] = ()  # equal for the images of one list
    figure: Any = None

    @property
    def score(self) -> float:
        return sum(WEIGHTS[name] * value for name, value in self.values.items())


def features(node: Any, attributes: dict[str, str | None], order: int) -> Features:
    """The features of an <img>; `order` is the number of images before it on the page."""
    declared = _side(attributes, "width"), _side(attributes, "height")
    known = [side for side in declared if side is not None]
    least = min(known, default=200)
    called = _called(_classes(attributes))
    source = (attributes.get("src") or "")[-200:].rsplit("/", 1)[-1]
    flags = {
        "small": least < 100, "medium": 100 <= least < 200, "large": len(known) == 2 and least >= 300,
        "name": "name" in called or _NAMES.search(source) or _NAMES.search((attributes.get("alt") or "")[:60]),
        "hero": "hero" in called, "shared": (attributes.get("itemprop") or "").lower() in ("image", "contenturl"),
    }  # fmt: skip
    values = {name: 1.0 for name, true in flags.items() if true} | {"order": min(order, 8)}
    result = Features(values, declared)
    _ancestors(node, result)
    return result


def _ancestors(node: Any, result: Features) -> None:
    """Add what the tags and names around an image say, up to LEVELS ancestors."""
    values, parent = result.values, node.parent
    signature: list[str] = []
    for level in range(LEVELS):
        if parent is None:
            break
        tag = parent.tag
        if tag in ("body", "html") or tag is None:
            break
        attributes = parent.attributes
        called = _classes(attributes)
        if tag in ("article", "main") or (attributes.get("role") or "") == "main":
            values["article"] = 1
        elif tag == "figure":
            values["figure"] = 1
            result.figure = result.figure or parent
        elif tag in _ASIDE_TAGS and not (tag == "header" and _within(parent, ("article", "main"))):
            values["aside"] = 1
        elif tag == "a":
            target = attributes.get("href") or ""
            values["zoom" if _PICTURE.search(target) else "link"] = 1
        if called:
            names = _called(called)
            if "aside" in names:
                values["aside"] = 1
            if level < 3 and "hero" in names:
                values["hero"] = 1
        if level < 3:
            signature.append(f"{tag}.{called}")
        parent = parent.parent
    result.likeness = (*signature, *result.declared)
    if "zoom" in values:
        values.pop("link", None)


def _classes(attributes: dict[str, str | None]) -> str:
    """A tag's classes and id, cut to LETTERS: they are kept for every image of a page."""
    return f"{(attributes.get('class') or '')[:LETTERS]} {(attributes.get('id') or '')[:LETTERS]}".strip()


@lru_cache(10_000)
def _called(name: str) -> tuple[str, ...]:
    """The kinds of names among classes and id. Cached: pages of one site share theirs."""
    patterns = (("aside", _ASIDE), ("hero", _HERO), ("name", _NAMES))
    return tuple(what for what, pattern in patterns if pattern.search(name))


def _within(node: Any, tags: tuple[str, ...]) -> bool:
    for _ in range(LEVELS):
        node = node.parent
        if node is None or node.tag in tags:
            return node is not None
    return False


def mark_alike(of_page: list[Features]) -> None:
    """Mark three or more images of one size, with ancestors of one name: a gallery or a list, where none leads."""
    counts = Counter(one.likeness for one in of_page)
    for one in of_page:
        if counts[one.likeness] >= 3:
            one.values["alike"] = 1


def _side(attributes: dict[str, str | None], name: str) -> int | None:
    value = (attributes.get(name) or "").strip().lower().removesuffix("px")
    if value.isdecimal() and len(value) < 7:
        return int(value)
    style = attributes.get("style") or ""
    match = re.search(rf"(?<![\w-]){name}\s*:\s*(\d{{1,5}})px", style) if style else None
    return int(match[1]) if match else None
