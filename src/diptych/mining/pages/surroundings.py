"""The sentences before and after an image, in its own block: ImageBERT's "surrounding text", whose reach is ours."""

from typing import Any

from diptych.mining.pages.texts import sentences

CLIMB = 5  # ancestors whose siblings are read
FAR = 12  # siblings that are skipped on each side
LETTERS = 600  # of a block, on the side of the image
_ENDS = frozenset({"body", "html", "main", "article", "section", "td", "th", "li", "header", "footer", "nav", "aside"})
_SILENT = frozenset({"script", "style", "noscript", "figcaption", "nav", "aside", "header", "footer", "template",
                     "form"})  # fmt: skip


def around(picture: Any) -> list[str]:
    """The last sentence before an image and the first one after it, if there are any."""
    node = picture
    before = after = ""
    for _ in range(CLIMB):
        before = before or _text_next_to(node, "prev")
        after = after or _text_next_to(node, "next")
        parent = node.parent
        if (before and after) or parent is None or parent.tag in _ENDS:
            break
        node = parent
    last, first = sentences(before[-LETTERS:])[-1], sentences(after[:LETTERS])[0]
    return [one for one in (last, first) if one]


def _text_next_to(node: Any, side: str) -> str:
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
