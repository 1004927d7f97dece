"""Find the texts of an image on a page: its <figcaption>, a block with a class such as `wp-caption-text`, and the
sentences around it.

ImageBERT calls this "surrounding text"; the limits are ours.
"""

import re
from collections.abc import Sequence
from typing import Any

from diptych_mine.pages.dominant import called_by, classes
from diptych_mine.pages.texts import sentences

CAPTION_CLIMB = 3  # number of ancestors that are searched for a caption
CAPTION_IMAGES = 2  # an ancestor with more images is not searched; two may be an image and its placeholder
CLIMB = 5  # number of ancestors whose siblings are read
FAR = 12  # at most this many siblings are read on each side, but a row of inline tags is read to its end
LETTERS = 600  # at most this many characters of a block are read, those nearest to the image
MOST_NODES = 2_000  # at most this many tags and texts of a block are read, those nearest to the image
_ENDS = frozenset({"body", "html", "main", "article", "section", "td", "th", "li", "header", "footer", "nav", "aside"})
_CELLS = frozenset({"td", "th"})
_SILENT = re.compile(r"h[1-6]|script|style|noscript|figcaption|nav|aside|header|footer|template|form")
_NOT_SHOWN = frozenset({"script", "style", "noscript", "template"})
# Tags that are shown as blocks, cells or controls. All other tags, except <br>, are inline and separate no words.
_BLOCKS = re.compile(
    "address|article|aside|blockquote|body|button|caption|center|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption"
    "|figure|footer|form|h[1-6r]|header|hgroup|legend|li|main|menu|nav|ol|optgroup|option|p|pre|search|section|select"
    "|summary|table|tbody|td|tfoot|th|thead|tr|ul"
)
_SUPERSCRIPTS = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_RAISED = re.compile(r"[0-9+−-]+")  # digits in a <sup>: 10<sup>2</sup> must not become 102
_IMAGES = ":is(img, amp-img):not(noscript *, template *)"


def shown(node: Any) -> str:
    """Return the text of a tag as browsers show it. Only block tags and <br> separate words."""
    return " ".join(_raw(node).split())


def _raw(node: Any, last: bool = False) -> str:
    """Return the shown text of a node, with its spaces.

    At most MOST_NODES nodes are read, from the node's start, or from its end if `last`.
    """
    parts: list[str] = []
    waiting: list[Any] = [node]
    for _ in range(MOST_NODES):
        if not waiting:
            break
        one = waiting.pop()
        if isinstance(one, str):
            parts.append(one)
            continue
        if one is not node and (following := one.prev if last else one.next) is not None:
            waiting.append(following)
        if one.tag == "-text":
            text = one.text_content or ""
            raised = "sup" in (one.parent.tag, one.parent.parent.tag) and _RAISED.fullmatch(text)
            parts.append(text.translate(_SUPERSCRIPTS) if raised else text)
        elif one is node or one.tag not in _NOT_SHOWN:
            gap = [" "] if one.tag == "br" or _BLOCKS.fullmatch(one.tag or "") else []
            parts += gap
            inner = one.last_child if last else one.first_child
            waiting += gap if inner is None else [*gap, inner]
    return "".join(reversed(parts) if last else parts)


def figcaption_of(figure: Any) -> str:
    """Return the text of the figure's own <figcaption>, not of one of a figure inside it; empty if there is none."""
    for caption in figure.css("figcaption"):
        holder = caption.parent
        while holder is not None and holder.tag != "figure":
            holder = holder.parent
        if holder is not None and holder.mem_id == figure.mem_id and (text := shown(caption)):
            return text
    return ""


def caption_of(pictures: Sequence[Any]) -> str:
    """Return the text of a block with a class such as `wp-caption-text` near the image; empty if there is none.

    `pictures`: the tags of the image. The block is searched near the first one.
    """
    node, own = pictures[0], {one.mem_id for one in pictures}
    for _ in range(CAPTION_CLIMB):
        node = node.parent
        if node is None or (node.tag in _ENDS and node.tag not in _CELLS) or len(node.css("img")) > CAPTION_IMAGES:
            break
        for block in node.css("[class*=caption]"):
            if not _of_another(block, node, own) and (text := shown(block)):
                return text
        if node.tag in _CELLS:
            break
    return ""


def _of_another(block: Any, outer: Any, own: set[int]) -> bool:
    """Return True if the block, or a tag around it inside `outer`, holds only other images."""
    while block is not None and block.mem_id != outer.mem_id:
        if images := block.css(_IMAGES):
            return own.isdisjoint(one.mem_id for one in images)
        block = block.parent
    return False


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
    """Return the nearest text on one side of a node: of a block, or of texts and inline tags in a row.

    No text behind another image is read.
    """
    row: list[Any] = []
    for step in range(MOST_NODES):
        if step >= FAR and not row:
            break
        node = getattr(node, side)
        tag = "hr" if node is None else node.tag or ""
        block = _BLOCKS.fullmatch(tag)
        if block or tag in ("img", "picture"):  # a block or an image ends the row of inline tags
            if text := _prose(row, side):
                return text
            row = []
        if tag in ("img", "figure", "picture", "hr"):
            return ""
        if _SILENT.fullmatch(tag) or "aside" in called_by(classes(node.attributes or {})):
            continue
        if tag[:1] != "-" and node.css_first("img, amp-img, script, style") is not None:
            if node.css_first(_IMAGES) is not None:
                break
            if node.css_first("script, style") is not None:
                continue
        if row or tag != "-text" or (node.text_content or "").strip():
            row.append(node)
        if block:
            if text := _prose(row, side):
                return text
            row = []
    return _prose(row, side)


def _prose(row: Sequence[Any], side: str) -> str:
    """Return the text of nodes in a row; empty if at least half of it is links."""
    parts = [_raw(one, side == "prev") for one in row]
    text = " ".join("".join(reversed(parts) if side == "prev" else parts).split())
    if not text:
        return ""
    tags = [one for one in row if (one.tag or "-")[:1] != "-"]
    links = [link for one in tags for link in ([one] if one.tag == "a" else one.css("a"))]
    whole = sum(len(" ".join((one.text(deep=True, separator=" ") or "").split())) for one in tags)
    whole += sum(len((one.text_content or "").strip()) for one in row if one.tag == "-text")
    return text if 2 * sum(len(one.text(deep=True)) for one in links) < whole else ""
