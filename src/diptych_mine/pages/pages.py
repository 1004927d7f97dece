"""Read an HTML page into rows, one per image. Only the dominant image's row has texts."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from diptych.runtime.extras import requires_extra
from diptych_mine.pages import addresses, candidates, hidden, licences
from diptych_mine.pages.bodies import too_slow
from diptych_mine.pages.charsets import decoded
from diptych_mine.pages.dominant import Features
from diptych_mine.pages.surroundings import around, caption_of, figcaption_of
from diptych_mine.pages.texts import Text, Vocabularies, english, judge_languages, judged
from diptych_mine.rules import KINDS
from diptych_mine.settings import MiningSettings, TextRules

NEVER = frozenset({"noai", "noimageai", "noml", "noindex", "noimageindex", "none"})
AGENTS = ("diptych", "diptych-mine")
_OPT_OUTS = frozenset({"robots", "tdm-reservation", *AGENTS})  # names of <meta> tags that are always read
# Directives of X-Robots-Tag with a value after a colon. The word before any other colon names a robot.
VALUED = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")
_USAGE = re.compile(r"(/\S*)?.*?\b(?:ai-train|train-ai)\s*=\s*(\w+)", re.I)  # a path, and yes or no
MOST_METAS = 500  # at most this many <meta> tags of a page are read
MOST_PICTURES = 1_000  # at most this many images of a page get a row; further images are only counted
ENOUGH = 200  # the language of a page is first recognised from this many characters
MORE = 1_000  # the language is recognised again from this many characters if the first ENOUGH do not seem English
DECLARED = 0.1  # least probability of English on a page that declares English
LITTLE = 20  # if a page has fewer characters of text, its title and alt texts are added
OVERRULED = 0.98  # least probability of English on a page that declares another language
TOGETHER = 100  # number of pages whose languages are recognised together
_PARTS = f"meta, img, amp-img, base[href], {hidden.SELECTOR}, {candidates.BACKGROUNDS}, {licences.TELLING}"
_TEMPLATE = frozenset({"template"})
_NO_TEXT = frozenset({"script", "style", "template", "noscript", "select", "nav", "svg"})

Row = dict[str, Any]


@dataclass
class Page:
    """An HTML page with its rows.

    `verdict`: the rule that drops the page; empty for a page that is kept. `text`: the text from which the
    page's language is recognised. `html`: the page's HTML if its images are read later, else empty.
    """

    address: str
    verdict: str = ""
    declared: str = ""
    language: str = ""
    english: float | None = None
    title: str = ""
    rows: list[Row] = field(default_factory=list)
    more_pictures: int = 0
    text: str = ""
    html: str = ""


def forbids(headers: Iterable[tuple[str, str]]) -> bool:
    """Return True if HTTP headers opt out of mining.

    These are X-Robots-Tag for all robots or ours, TDM-Reservation 1, and Content-Usage or Content-Signal against
    training.
    """
    for name, value in headers:
        match name.lower():
            case "tdm-reservation" if value.strip() == "1":
                return True
            case "x-robots-tag" if _forbidden(value):
                return True
            case "content-usage" | "content-signal" if (usage_of(value) or (False, ""))[0]:
                return True
    return False


def usage_of(value: str) -> tuple[bool, str] | None:
    """Return whether a value of Content-Usage or Content-Signal forbids training, and its path ("": none).

    None if the value does not mention training.
    """
    match = _USAGE.match(value)
    return (match[2].lower() in ("n", "no"), match[1] or "") if match else None


def _forbidden(value: str) -> bool:
    agent, colon, rest = value.lower().partition(":")
    if colon and "," not in agent and agent.strip() not in VALUED:
        if agent.strip() not in AGENTS:
            return False
        value = rest
    return not NEVER.isdisjoint(re.split(r"[\s,]+", value.lower()))


def read_page(
    address: str, body: bytes, settings: MiningSettings, vocabularies: Vocabularies,
    charset: str | None = None, headers: Iterable[tuple[str, str]] = (),
) -> Page:  # fmt: skip
    """Read a page. `settle` recognises its language later. Never raises an error for the content of a page."""
    page, html = Page(_plain(address)), decoded(body, charset)
    if too_slow(html):
        page.verdict = "too deep"
        return page
    _read(page, html, headers, settings, vocabularies)
    return page


def _read(
    page: Page, html: str, headers: Iterable[tuple[str, str]], settings: MiningSettings, vocabularies: Vocabularies
) -> None:
    """Read a page. If a page declares another language but turns out to be English, this function is called again."""
    with requires_extra("diptych mine", "mine"):
        from selectolax.lexbor import LexborHTMLParser
    rules, tree, first = settings.pages, LexborHTMLParser(html), not page.html
    metas, pictures, telling, base = _parts(tree, page.address)
    page.more_pictures = max(0, len(pictures) - MOST_PICTURES)
    pictures = pictures[:MOST_PICTURES]
    if first and rules.opt_out and (forbids(headers) or _opted_out(metas)):
        page.verdict = "opt_out"
    elif first:
        page.title = _title(tree)
        _sample(tree, page, pictures, rules.language)
        page.html = html if page.text and _declared_other(page) else ""
    if page.verdict or (first and page.html):
        for number, picture in enumerate(pictures):
            page.rows.append(row_of(page, number, _place(base, picture)))
    else:
        page.rows.clear()
        _pictures(tree, page, pictures, base, metas, telling, settings, vocabularies)


def settle(pages: Iterable[Page], settings: MiningSettings, vocabularies: Vocabularies) -> None:
    """Recognise the languages of many pages and of their texts, and apply the rules about languages.

    This is three times as fast as going page by page, because the language model's 57 MB stay in the processor's cache.
    """
    kept: list[Row] = []
    for page in pages:
        if page.text:
            _classify(page, settings.pages.language)
        if page.verdict:
            page.rows = [row_of(page, row["place"], row["address"], fails=[page.verdict]) for row in page.rows]
            continue
        if page.html:
            _read(page, page.html, (), settings, vocabularies)
        for row in page.rows:
            row["language"], row["english"] = page.language, page.english
        kept += page.rows
    settle_texts(kept, settings.texts)


def settle_texts(rows: Iterable[Row], rules: TextRules) -> None:
    """Recognise the languages of the texts of many rows. Drop the rows that have no text left."""
    rows = [row for row in rows if row["texts"]]
    judge_languages((text for row in rows for text in row["texts"]), rules)
    for row in rows:
        if "no_text" not in row["fails"] and all(text["fails"] for text in row["texts"]):
            row["fails"].append("no_text")


def _pictures(
    tree: Any, page: Page, pictures: list[Any], base: str, metas: list[dict[str, str | None]],
    telling: list[Any], settings: MiningSettings, vocabularies: Vocabularies,
) -> None:  # fmt: skip
    places = [_place(base, picture) for picture in pictures]
    shared = candidates.Shared.of(base, metas, (one for one in telling if one.tag == "script"))
    shown = candidates.candidates(pictures, places, shared)
    rules = settings.pages
    best, lead = candidates.leading(shown, rules.dominant_least)
    only = shared.candidate(shown, len(pictures))
    if only is not None and (best is None or lead < (rules.dominant or 0.0) or best.score < only.score):
        best, lead = only, 99.0
        shown.append(only)
        places.append(only.address)
    elif best is not None:
        places[best.best] = shared.enlarge(best)
    by_copy = {number: one for one in shown for number in one.copies}
    for number, where in enumerate(places):
        one = by_copy.get(number)
        leads = one is best and one is not None and number == one.best
        row = row_of(page, number, where, one.seen if one else None, one.score if one else None)
        row["lead"] = lead if leads else None
        if rules.address and not addresses.usable(where):
            row["fails"].append("address")
        if rules.dominant is not None and (
            not leads or lead < rules.dominant or row["dominant"] < rules.dominant_least
        ):
            row["fails"].append("dominant")
        if one is not None and number == one.best and (leads or rules.dominant is None):
            tags = [pictures[copy] for copy in one.copies if copy < len(pictures)]
            row["texts"] = [vars(text) for text in _texts(tags, one, settings, vocabularies)]
            row["licence"] = licences.of_page(tree, tags[0] if tags else None, telling)
            if all(text["fails"] for text in row["texts"]):
                row["fails"].append("no_text")
        page.rows.append(row)


def row_of(
    page: Page, place: int, address: str, seen: Features | None = None, score: float | None = None,
    fails: Iterable[str] = (), texts: Iterable[Row] = (),
) -> Row:  # fmt: skip
    """Return the row of an image. `place`: its index on the page."""
    width, height = seen.declared if seen is not None else (None, None)
    return {
        "page": page.address, "address": _plain(address), "place": place, "title": page.title,
        "declared": page.declared, "language": page.language, "english": page.english,
        "declared_width": width, "declared_height": height,
        "dominant": round(score, 4) if score is not None else None, "lead": None,
        "features": sorted(seen.values) if seen is not None else [], "texts": [*texts], "licence": "unknown",
        "fails": list(fails),
    }  # fmt: skip


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def _place(base: str, picture: Any) -> str:
    address = addresses.absolute(base, source) if (source := candidates.source_of(picture)) else ""
    return address if address != base else ""


def _texts(
    pictures: list[Any], one: candidates.PagePicture, settings: MiningSettings, vocabularies: Vocabularies
) -> list[Text]:
    """Return the texts of an image from its tags, without duplicates, in the order of KINDS, long alt texts first."""
    raw = list(one.texts)
    for picture in pictures:
        attributes = picture.attributes
        label = "alt" if picture.tag in ("img", "amp-img") else "aria-label"  # the text of a background
        raw += [("alt", attributes.get(label) or ""), ("title", attributes.get("title") or "")]
    own = figcaption_of(one.seen.figure) if one.seen.figure is not None else ""
    raw.append(("figcaption", own or (caption_of(pictures) if pictures else "")))
    raw += [("near", sentence) for picture in pictures[:1] for sentence in around(picture)]
    texts: dict[str, Text] = {}
    for kind, text in sorted(raw, key=lambda one: (KINDS.index(one[0]), -len(one[1]) if one[0] == "alt" else 0)):
        if text and (judged_text := judged(kind, text, settings.texts, vocabularies)) is not None:
            texts.setdefault(judged_text.text.casefold(), judged_text)
    return list(texts.values())


def _parts(
    tree: Any, address: str, folded: bool = True
) -> tuple[list[dict[str, str | None]], list[Any], list[Any], str]:
    """Return the attributes of each <meta>, the tags of images, the tags about licences, and the base URL.

    If `folded`, images in a <template> or an escaped <noscript> are first put into the tree.
    """
    metas: list[dict[str, str | None]] = []
    pictures: list[Any] = []
    telling: list[Any] = []
    base = ""
    folds: list[Any] = []
    for node in tree.css(_PARTS):
        tag = node.tag
        if tag == "meta":
            name = (node.attributes.get("name") or "").strip().lower()
            if len(metas) < MOST_METAS or name in _OPT_OUTS:
                metas.append(node.attributes)
        elif tag == "base":
            base = base or addresses.absolute(address, node.attributes.get("href") or "")
        elif tag in ("img", "amp-img") or candidates.has_background(node):
            pictures.append(node)
        elif tag in candidates.FOLDS:
            folds.append(node)
        else:
            telling.append(node)
    if folded and hidden.unfold(folds):
        return _parts(tree, address, folded=False)
    return metas, pictures, telling, base or address


def _opted_out(metas: list[dict[str, str | None]]) -> bool:
    for meta in metas:
        name, content = (meta.get("name") or "").strip().lower(), meta.get("content") or ""
        reserved = name == "tdm-reservation" and content.strip() == "1"
        if reserved or (name in ("robots", *AGENTS) and _forbidden(content)):
            return True
    return False


def _title(tree: Any) -> str:
    title = tree.css_first("title")
    return _plain(" ".join((title.text() or "").split())[:300]) if title is not None else ""


def _sample(tree: Any, page: Page, pictures: list[Any], least: float | None) -> None:
    """Set the page's declared language, and the text from which the language is recognised.

    If there is too little text, the declared language decides.
    """
    root = tree.css_first("html")
    page.declared = ((root.attributes.get("lang") or "") if root is not None else "")[:35].strip().lower()
    if least is None:
        return
    text = running_text(tree)
    if len(text) < LITTLE:
        text = " ".join([text, page.title, *((one.attributes.get("alt") or "") for one in pictures[:20])])[:ENOUGH]
    if len(text.strip()) >= LITTLE:
        page.text = text
    elif not page.declared.startswith("en"):
        page.verdict = "language"


def _declared_other(page: Page) -> bool:
    return bool(page.declared) and not page.declared.startswith("en")


def _classify(page: Page, least: float | None) -> None:
    """Drop a page whose probability of English is below `least`.

    For a page that declares another language, at least 0.98 is required; for a page that declares English, 0.1 is
    enough. A short text may be mostly names, so more text is read before a page is dropped.
    """
    if least is not None:
        wanted = max(least, OVERRULED) if _declared_other(page) else min(least, DECLARED) if page.declared else least
    for length in (ENOUGH, MORE):
        page.language, _, page.english = english()(page.text[:length])
        page.english = round(page.english, 6)
        if least is None or page.english >= wanted:
            return
        if len(page.text) <= length:
            break
    page.verdict = "language"


def _walk(node: Any, silent: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Yield all nodes in order. They are not collected in a list first, because often only the first nodes are read."""
    while node is not None:
        yield node
        after = node.first_child if node.tag not in silent else None
        while after is None and node is not None:
            after = node.next
            node = node.parent
        node = after


def running_text(tree: Any) -> str:
    """Return the first MORE characters of the paragraphs.

    If these have fewer than ENOUGH characters, the text of the body is added.
    """
    parts: list[str] = []
    length = 0
    for paragraph in _walk(tree.css_first("p"), _TEMPLATE):
        if paragraph.tag == "p":
            text = " ".join(paragraph.text(deep=True, separator=" ").split())
            if len(text) > LITTLE or parts:
                parts.append(text)
                length += len(text)
            if length >= MORE:
                break
    for node in _walk(tree.body, _NO_TEXT) if length < ENOUGH else ():
        if node.tag == "-text" and (text := " ".join((node.text_content or "").split())):
            parts.append(text)
            length += len(text) + 1
            if length >= MORE:
                break
    return " ".join(parts)[:MORE]
