"""Find the caption of an image (a block with a class such as `wp-caption-text`), and the sentences around the image.

ImageBERT calls this "surrounding text"; the limits are ours.
"""

import re
from typing import Any

from diptych.mining.pages.dominant import called_by, classes
from diptych.mining.pages.texts import sentences

CAPTION_CLIMB = 3  # number of ancestors that are searched for a caption
CAPTION_IMAGES = 2  # limit of images in such an ancestor: the image and its placeholder
CLIMB = 5  # number of ancestors whose siblings are read
FAR = 12  # limit of siblings that are read on each side
LETTERS = 600  # number of characters that are read of a block, nearest to the image
_ENDS = frozenset({"body", "html", "main", "article", "section", "td", "th", "li", "header", "footer", "nav", "aside"})
_SILENT = re.compile(r"h[1-6]|script|style|noscript|figcaption|nav|aside|header|footer|template|form")


def caption_of(picture: Any) -> str:
    """Return the text of a block with a class such as `wp-caption-text` near the image; empty if there is none."""
    node = picture
    for _ in range(CAPTION_CLIMB):
        node = node.parent
        if node is None or node.tag in _ENDS or len(node.css("img")) > CAPTION_IMAGES:
            break
        for block in node.css("[class*=caption]"):
            if text := " ".join(block.text(deep=True, separator=" ").split()):
                return text
    return ""


def around(picture: Any) -> list[str]:
    """Return the last sentence before an image and the first sentence after it, if there are any."""
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
        if _SILENT.fullmatch(node.tag or "") or "aside" in called_by(classes(node.attributes or {})):
            continue
        if node.tag != "-text" and node.css_first("script, style") is not None:
            continue
        text = node.text(deep=True, separator=" ") if node.tag != "-text" else node.text_content or ""
        text = " ".join(text.split())
        if text and (node.tag == "-text" or 2 * sum(len(one.text(deep=True)) for one in node.css("a")) < len(text)):
            return text
    return ""
