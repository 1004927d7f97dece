"""Put images that the HTML parser does not list into the tree: those of <template> and of an escaped <noscript>."""

import re
from collections.abc import Iterable
from typing import Any

from diptych_mine.pages.bodies import too_slow
from diptych_mine.pages.candidates import FOLDS, source_of

SELECTOR = ", ".join(sorted(FOLDS))
LEVELS = 3  # <noscript> and <template> tags inside each other are read to this depth
_OF_PAGE = "base, meta, link, title, script"  # tags that have no effect in a <template>
_IMAGE = re.compile("(?:<|&lt;)img", re.I)
MOST = 200  # images are taken from at most this many <noscript> and <template> tags of a page
LETTERS = 100_000  # at most this many characters of a <noscript> or <template> are read


def unfold(nodes: Iterable[Any], levels: int = LEVELS) -> bool:
    """Parse the content of <noscript> and <template> tags as their children. Return True if it has images."""
    unfolded = 0
    for node in nodes:
        if unfolded == MOST:
            break
        if markup := _markup(node):
            unfolded += _unfold(node, markup, levels)
    return unfolded > 0


def _markup(node: Any) -> str:
    """Return the content of a tag as markup, if it has an image that the parser did not list; else ""."""
    if node.tag == "template":
        markup = (node.html or "") if node.first_child is None else ""
        markup = "<div" + markup.removeprefix("<template") if markup else ""
    else:
        markup = node.text(deep=True) if node.first_child is not None and node.css_first("img") is None else ""
        if "&lt;" in markup:  # the markup was escaped twice
            markup = markup.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    markup = markup[:LETTERS]
    return markup if _IMAGE.search(markup) and not too_slow(markup) else ""


def _unfold(node: Any, markup: str, levels: int) -> bool:
    body = type(node.parser)(markup).body
    if body is None:
        return False
    inner = body.css(SELECTOR) if levels > 1 else []
    unfold(inner, levels - 1)
    if not any(source_of(one) for one in body.css("img")):
        return False
    for old in _children(node):
        if old.tag == "-text":
            old.decompose()
    for old in body.css(_OF_PAGE):
        old.decompose()
    for new in _children(body):
        node.insert_child(new)
    return True


def _children(node: Any) -> list[Any]:
    children, child = [], node.first_child
    while child is not None:
        children.append(child)
        child = child.next
    return children
