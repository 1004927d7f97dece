"""The sentences before and after a picture, in its own block; the paper's "surrounding text", whose reach is ours."""

from typing import Any

from diptych.mining.pages.texts import sentences

CLIMB = 5  # ancestors that are looked around
FAR = 12  # siblings that are passed over on each side
LETTERS = 600  # of a block, on the side of the picture
_ENDS = frozenset({"body", "html", "main", "article", "section", "td", "th", "li", "header", "footer", "nav", "aside"})
_SILENT = frozenset(
    {"script", "style", "noscript", "figcaption", "nav", "aside", "header", "footer", "template", "form"}
)


def around(picture: Any) -> list[str]:
    """At most two: the last sentence before it and the first one after it."""
    node = picture
    before = after = ""
    for _ in range(CLIMB):
        before = before or _beside(node, "prev")
        after = after or _beside(node, "next")
        parent = node.parent
        if (before and after) or parent is None or parent.tag in _ENDS:
            break
        node = parent
    found = []
    if before:
        found.append(sentences(before[-LETTERS:])[-1])
    if after:
        found.append(sentences(after[:LETTERS])[0])
    return found


def _beside(node: Any, side: str) -> str:
    for _ in range(FAR):
        node = getattr(node, side)
        if node is None or (node.tag or "") in ("img", "figure", "picture", "hr"):
            return ""
        if node.tag in _SILENT:
            continue
        text = node.text(deep=True, separator=" ") if node.tag != "-text" else node.text_content or ""
        text = " ".join(text.split())
        if text:
            return text
    return ""
