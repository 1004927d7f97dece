"""How much a picture looks like what its page is about: ImageBERT's "HTML tags and DOM tree features"; which is ours.

One table of weights, set by hand on the even page templates of the test web and never on the odd ones; no training.
"""

import re
from dataclasses import dataclass, field
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
    "aside": -3.0,  # in <header>, <nav>, <footer> or <aside>, or in a part that is called so
    "link": -1.0,  # inside <a>, unless that leads to a picture
    "zoom": 0.5,  # inside <a> that leads to a picture
    "hero": 1.5,  # called hero, featured, main-image, ...
    "name": -4.0,  # called logo, icon, avatar, ...
    "alike": -3.0,  # of three or more of one size in one list
    "paragraph": 0.5,  # text stands beside it
    "order": -0.25,  # for each picture before it, up to eight
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
    """Of one <img>; `found` names what of the table is there."""

    found: dict[str, float] = field(default_factory=dict)
    width: int | None = None
    height: int | None = None
    likeness: tuple[Any, ...] = ()  # the same for pictures of one list
    figure: Any = None
    declared: tuple[int | None, int | None] = (None, None)

    @property
    def score(self) -> float:
        return sum(WEIGHTS[name] * times for name, times in self.found.items())


def features(node: Any, attributes: dict[str, str | None], order: int) -> Features:
    """`order` counts the page's pictures before this one."""
    result = Features()
    width, height = _side(attributes, "width"), _side(attributes, "height")
    result.declared = width, height
    found = result.found
    known = [side for side in (width, height) if side is not None]
    if known and min(known) < 100:
        found["small"] = 1
    elif known and min(known) < 200:
        found["medium"] = 1
    elif len(known) == 2 and min(known) >= 300:
        found["large"] = 1
    called = _classes(attributes)
    source = (attributes.get("src") or "")[-200:].rsplit("/", 1)[-1]
    if "name" in _called(called) or _NAMES.search(source) or _NAMES.search((attributes.get("alt") or "")[:60]):
        found["name"] = 1
    if "hero" in _called(called):
        found["hero"] = 1
    if (attributes.get("itemprop") or "").lower() in ("image", "contenturl"):
        found["shared"] = 1
    found["order"] = min(order, 8)
    _ancestors(node, result)
    return result


def _ancestors(node: Any, result: Features) -> None:
    found, parent = result.found, node.parent
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
            found["article"] = 1
        elif tag == "figure":
            found["figure"] = 1
            result.figure = result.figure or parent
        elif tag in _ASIDE_TAGS and not (tag == "header" and _within(parent, ("article", "main"))):
            found["aside"] = 1
        elif tag == "a":
            target = attributes.get("href") or ""
            found["zoom" if _PICTURE.search(target) else "link"] = 1
        if called:
            meant = _called(called)
            if "aside" in meant:
                found["aside"] = 1
            if level < 3 and "hero" in meant:
                found["hero"] = 1
        if level < 3:
            signature.append(f"{tag}.{called}")
        parent = parent.parent
    result.likeness = (*signature, *result.declared)
    if "link" in found and "zoom" in found:
        del found["link"]


def _classes(attributes: dict[str, str | None]) -> str:
    """Its classes and id, no longer than is sensible: they are kept for every picture of a page."""
    return f"{(attributes.get('class') or '')[:LETTERS]} {(attributes.get('id') or '')[:LETTERS]}".strip()


@lru_cache(10_000)
def _called(name: str) -> tuple[str, ...]:
    """What classes and id make of a tag; pages of one site share theirs."""
    meant = (("aside", _ASIDE), ("hero", _HERO), ("name", _NAMES))
    return tuple(what for what, pattern in meant if pattern.search(name))


def _within(node: Any, tags: tuple[str, ...]) -> bool:
    parent = node.parent
    for _ in range(LEVELS):
        if parent is None:
            return False
        if parent.tag in tags:
            return True
        parent = parent.parent
    return False


def mark_alike(of_page: list[Features]) -> None:
    """Three or more of one size, with ancestors of one name, are a gallery or a list: none of them leads."""
    counts: dict[tuple[Any, ...], int] = {}
    for one in of_page:
        counts[one.likeness] = counts.get(one.likeness, 0) + 1
    for one in of_page:
        if counts[one.likeness] >= 3:
            one.found["alike"] = 1


def _side(attributes: dict[str, str | None], name: str) -> int | None:
    value = (attributes.get(name) or "").strip().lower().removesuffix("px")
    if value.isdecimal() and len(value) < 7:
        return int(value)
    style = attributes.get("style") or ""
    match = re.search(rf"(?<![\w-]){name}\s*:\s*(\d{{1,5}})px", style) if style else None
    return int(match[1]) if match else None
