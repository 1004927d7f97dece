"""Read an HTML page into rows: one per image, of which the dominant one has texts."""

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from diptych.mining.pages import addresses, licences
from diptych.mining.pages.dominant import Features, features, mark_alike
from diptych.mining.pages.surroundings import around
from diptych.mining.pages.texts import KINDS, Text, Vocabularies, english, judge_languages, judged
from diptych.mining.settings import MiningSettings, TextRules
from diptych.runtime.extras import requires_extra

NEVER = frozenset({"noai", "noimageai", "noml", "noindex", "noimageindex", "none"})
AGENTS = ("diptych", "diptych-mine")
# Directives with a value, which look like names of robots.
VALUED = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")
SHARED = ("og:image", "twitter:image", "og:image:url")  # names of <meta>s with an image of the page
MOST_METAS = 500  # of a page; the others are ignored
MOST_PICTURES = 1_000  # of a page; the others are counted
ENOUGH = 200  # letters of running text that show the language
LITTLE = 20  # letters: to fewer, the page's title and the alt texts of its images are added
OVERRULED = 0.98  # probability of English that overrides another language in `lang`
TOGETHER = 100  # pages whose languages are classified together
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w-]{2,30})", re.I)

Row = dict[str, Any]


@dataclass
class Page:
    """One page. `verdict` is the rule that drops it, or empty.

    `text` is the sample that shows its language. `html` is kept only if images are read after the language is known.
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


def decoded(body: bytes, charset: str | None) -> str:
    """The text of a page by the charset of header or page, else as UTF-8, else as Windows-1252. Never raises."""
    declared = charset
    if not declared and (match := _CHARSET.search(body[:2048])):
        declared = match[1].decode("ascii", "replace")
    for name in (declared, "utf-8"):
        if name and name.lower() not in ("unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"):
            try:
                if codecs.lookup(name)._is_text_encoding:
                    return body.decode(name).replace("\0", " ")
            except (LookupError, UnicodeError, ValueError):
                continue
    return body.decode("cp1252", "replace").replace("\0", " ")


def forbids(headers: Iterable[tuple[str, str]]) -> bool:
    """True if the headers of a page or an image opt out: X-Robots-Tag for all or for us, or TDM-Reservation 1."""
    for name, value in headers:
        lower = name.lower()
        if (lower == "tdm-reservation" and value.strip() == "1") or (lower == "x-robots-tag" and _forbidden(value)):
            return True
    return False


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
    """Read a page, except its language, which `settle` adds. Never raises for the content of a page."""
    page, html = Page(_plain(address)), decoded(body, charset)
    _read(page, html, headers, settings, vocabularies)
    return page


def _read(
    page: Page, html: str, headers: Iterable[tuple[str, str]], settings: MiningSettings, vocabularies: Vocabularies
) -> None:
    """Read a page the first time, or again if it declares another language and is English after all."""
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
            page.rows.append(row_of(page, number, addresses.absolute(base, _source(picture))))
    else:
        page.rows.clear()
        _pictures(tree, page, pictures, base, metas, telling, settings, vocabularies)


def settle(pages: Iterable[Page], settings: MiningSettings, vocabularies: Vocabularies) -> None:
    """Classify the languages of many pages and of their texts, and apply the rules that need them.

    The language model's 57 MB stay in the cache this way: three times as fast as alternating with parsing.
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
    """Classify the languages of the texts of many rows, and drop rows that have no text left."""
    rows = [row for row in rows if row["texts"]]
    judge_languages((text for row in rows for text in row["texts"]), rules)
    for row in rows:
        if "no_text" not in row["fails"] and all(text["fails"] for text in row["texts"]):
            row["fails"].append("no_text")


def _pictures(
    tree: Any, page: Page, pictures: list[Any], base: str, metas: list[dict[str, str | None]],
    telling: list[Any], settings: MiningSettings, vocabularies: Vocabularies,
) -> None:  # fmt: skip
    shared = {
        addresses.absolute(base, meta.get("content") or "")
        for meta in metas
        if (meta.get("property") or meta.get("name") or "").lower() in SHARED
    }
    images: list[tuple[Any, Features, str]] = []
    for number, picture in enumerate(pictures):
        seen, where = features(picture, picture.attributes, number), addresses.absolute(base, _source(picture))
        if where in shared:
            seen.values["shared"] = 1
        images.append((picture, seen, where))
    mark_alike([seen for _, seen, _ in images])
    scores = [seen.score for _, seen, _ in images]
    best, lead = _leading(scores, [where for _, _, where in images])
    rules = settings.pages
    for number, (picture, seen, where) in enumerate(images):
        row = row_of(page, number, where, seen, scores[number])
        row["lead"] = lead if number == best else None
        if rules.address and not addresses.usable(where):
            row["fails"].append("address")
        least = rules.dominant_least
        if rules.dominant is not None and (number != best or lead < rules.dominant or scores[number] < least):
            row["fails"].append("dominant")
        if number == best or rules.dominant is None:
            row["texts"] = [vars(text) for text in _texts(picture, seen, settings, vocabularies)]
            row["licence"] = licences.of_page(tree, picture, telling)
            if all(text["fails"] for text in row["texts"]):
                row["fails"].append("no_text")
        page.rows.append(row)


def _leading(scores: list[float], places: list[str]) -> tuple[int, float]:
    """The number of the best image, and its lead over the best one of another address (99 without one)."""
    if not scores:
        return -1, 0.0
    best = scores.index(max(scores))
    others = [score for score, where in zip(scores, places, strict=True) if where != places[best]]
    return best, round(scores[best] - max(others), 4) if others else 99.0


def row_of(
    page: Page, place: int, address: str, seen: Features | None = None, score: float | None = None,
    fails: Iterable[str] = (), texts: Iterable[Row] = (),
) -> Row:  # fmt: skip
    """The row of an image, the `place`-th of its page."""
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


def _source(picture: Any) -> str:
    parent = picture.parent
    inside = parent is not None and parent.tag == "picture"
    sets = [one.attributes.get("srcset") or "" for one in parent.css("source")] if inside else []
    return addresses.sources(picture.attributes, sets)


def _texts(picture: Any, seen: Features, settings: MiningSettings, vocabularies: Vocabularies) -> list[Text]:
    """The texts of an image in the order of KINDS, each once."""
    attributes = picture.attributes
    raw = [("alt", attributes.get("alt") or ""), ("title", attributes.get("title") or "")]
    if seen.figure is not None and (caption := seen.figure.css_first("figcaption")) is not None:
        raw.append(("figcaption", caption.text(deep=True, separator=" ")))
    raw += [("near", sentence) for sentence in around(picture)]
    texts: dict[str, Text] = {}
    for kind, text in sorted(raw, key=lambda one: KINDS.index(one[0])):
        if text and (one := judged(kind, text, settings.texts, vocabularies)) is not None:
            texts.setdefault(one.text.casefold(), one)
    return list(texts.values())


def _parts(tree: Any, address: str) -> tuple[list[dict[str, str | None]], list[Any], list[Any], str]:
    """The attributes of <meta>s, the images, the tags about licences, and the base address, in one walk."""
    metas: list[dict[str, str | None]] = []
    pictures: list[Any] = []
    telling: list[Any] = []
    base = ""
    for node in tree.css(f"meta, img, amp-img, base[href], {licences.TELLING}"):
        if node.tag == "meta":
            if len(metas) < MOST_METAS:
                metas.append(node.attributes)
        elif node.tag == "base":
            base = base or addresses.absolute(address, node.attributes.get("href") or "")
        elif node.tag in ("img", "amp-img"):
            pictures.append(node)
        else:
            telling.append(node)
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
    """Set the declared language and the text that shows the language. Without a text the declared one counts."""
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
    """Drop pages whose probability of English is under `least`, or under 0.98 if they declare another language."""
    page.language, _, page.english = english()(page.text)
    page.english = round(page.english, 6)
    if least is not None and page.english < (max(least, OVERRULED) if _declared_other(page) else least):
        page.verdict = "language"


def _paragraphs(tree: Any) -> Iterator[Any]:
    """All <p> in order, lazily: collecting them takes longer than reading the first ones."""
    node = tree.css_first("p")
    while node is not None:
        if node.tag == "p":
            yield node
        after = node.first_child
        while after is None and node is not None:
            after = node.next
            node = node.parent
        node = after


def running_text(tree: Any) -> str:
    """The first ENOUGH letters of the paragraphs, or of the body if there are none."""
    parts: list[str] = []
    length = 0
    for paragraph in _paragraphs(tree):
        text = " ".join(paragraph.text(deep=True, separator=" ").split())
        if len(text) > LITTLE or parts:
            parts.append(text)
            length += len(text)
        if length >= ENOUGH:
            break
    if length < LITTLE and tree.body is not None:
        tree.body.strip_tags(["script", "style", "template"])
        parts.append(" ".join(tree.body.text(deep=True, separator=" ")[: 20 * ENOUGH].split()))
    return " ".join(parts)[:ENOUGH]
