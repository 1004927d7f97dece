"""Clean the texts of an image, and note the rules that each text breaks."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from diptych.runtime.errors import RecipeError, explained
from diptych.runtime.extras import requires_extra
from diptych.runtime.files import text_of
from diptych_mine.settings import TextRules

LONGEST = 2_000  # at most this many characters of a text are read

_TAGS = re.compile(r"<[a-z/!][^<>]{0,500}>", re.I)
_INLINE = re.compile(  # tags inside a word
    r"(?<=\w)(?:</?(?:a|abbr|b|big|em|font|i|mark|q|s|small|span|strong|sub|u)(?:\s[^<>]{0,500})?>)+(?=[\w'’])", re.I
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z]\w{1,31});", re.I)
_NUMBERS = ("<fraction>", "<super>", "<sub>", "<circle>")  # digits that NFKC would join to a number before them
_ADDRESSES = re.compile(r"(?:https?://|www\.)\S+", re.I)
_MAIL = re.compile(r"[^\s@]{1,64}@[^\s@]{1,255}\.\w+")
_TELEPHONE = re.compile(  # telephone numbers, but not dates, coordinates or ISBNs
    r"(?<![\w.-])(?:(?:\+(?!\d{1,3}\.\d{4})\d|\(0?\d{2,4}\)\s?\d)(?:[\s().-]{0,2}\d){6,12}"
    r"|(?:1[-. ])?\d{3}([-. ])\d{3}\1\d{4}"
    r"|(?<=(?:tel|one|all|fax)[ :.])[ :.]{0,2}\d(?:[\s().-]{0,2}\d){6,12})(?![\w-])",
    re.I,
)
_DIGIT = re.compile(r"\d")
_LOOSE = re.compile(r" +([,;:.!?])(?=\s|$)")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_HYPHENS = re.compile(r"['’-]")
_FILE = re.compile(r"^[^\s/]*\.(?:jpe?g|png|gif|webp|bmp|tiff?|svg|avif|heic)$|\S+\.(?:jpe?g|png|gif|webp)$", re.I)
_NUMBERED = re.compile(
    r"^(?:img|dsc[nf]?|p|pict?|image|photo|picture|screen ?shot|untitled|scan|file|mvc|gopr|wp|vlcsnap)?"
    r"[\s_#()-]*\d[\d\s_.()x-]*$"
    r"|^(?=\S*\d)[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)+$|^[^\W_]+(?:_[^\W_]+)+$",
    re.I,
)
# Lists of names and dates. Possessive quantifiers make the time linear in the length of a list.
_NAMES = r"(?:[\s/|,&–—-]++|(?-i:[A-Z©])[\w.'’()]*+|\d[\d:.]*+(?:[ap]m)?|(?:of|the|for|and|by|via|at|on|user)\b)*+"
_WORDS_OF_NAME = r"(?-i:[A-Z])[\w.'’&-]*+"
_AGENCY = r"getty|reuters|afp|associated press|ap(?= photo|/)|shutterstock|istock|alamy|epa|corbis|flickr|wikimedia"
_PAPER = rf"{_AGENCY}|(?-i:[A-Z]{{2,}})|daily|post|times|news|herald|tribune|globe|journal|press|images|media|staff"
_BOILERPLATE = re.compile(
    r"[^\w©]*+(?:"
    r"(?:image|photo|picture) may contain\b.*"
    r"|(?:click|tap|press)\b.{0,30}\b(?:enlarge|zoom|larger|full|view)\b.{0,40}"
    r"|(?:file )?(?:photo(?:graph)?(?:er|s)?|image|picture|pic|illustration|video|screen ?shot|credits?|source"
    r"|courtesy)"
    r"\s*+(?:credits?|source|by|via|courtesy|copyright|[:/|©(])(?:\W*+(?:by|of|credit|courtesy)\b)?"
    rf"{_NAMES}(?:(?:family|collection|museum|library|archives?|artist|author)\b)?"
    rf"|{_WORDS_OF_NAME}(?: {_WORDS_OF_NAME}){{1,3}}(?: ?/ ?(?=.*\b(?:{_PAPER})\b)"
    rf"(?:the )?{_WORDS_OF_NAME}(?: {_WORDS_OF_NAME}){{0,3}}"
    rf"| for (?:the (?={_WORDS_OF_NAME})(?:{_WORDS_OF_NAME} ?){{1,3}}|(?-i:[A-Z]{{2,}})))"
    r"|(?:view|open|enlarge|expand|zoom|download|show)\b(?=.*\b(?:size|image|picture|photo|gallery|screen)\b)"
    r"(?: (?:full|larger?|original|this|the|in|a|size|screen|image|picture|photo|gallery|version|slideshow)\b)++"
    r"|(?:featured |header |cover )?(?:image|photo|picture|thumbnail) (?:for|of) (?:the |this )?"
    r"(?:post|article|story|page)"
    r"|no (?:alt(?:ernative)? text|image|photo|picture|caption)(?: (?:provided|available|for|this|image)\b)*+"
    r"|(?:image )?may be an? (?:(?:\w+ ){0,2}(?:image|photo|illustration|graphic)) of\b.*"
    r"|a (?:picture|photo|image) containing \w+,.*|copy of .{1,60}\(\d+\)|untitled design(?: \(?\d+\)?)?"
    r"|(?:profile|user|author)(?:'s|’s)? (?:photo|picture|image|avatar)(?: (?:of|for) .{1,40})?"
    r"|(?:add to|skip to|back to|go to|jump to) (?:main |the |your )?(?:cart|basket|bag|content|navigation|top|home)"
    r"(?: button)?"
    rf"|(?:©|c\)|copyright\b).{{0,100}}|.{{0,80}}\ball rights reserved.{{0,30}}|(?=.*\b(?:{_AGENCY})\b){_NAMES}"
    r"|(?:(?:written|posted|published|reported|updated|last (?:updated|modified))\b\W*+)?"
    rf"(?:by|on|posted|published|updated)\b{_NAMES}"
    r"|(?:(?:share|tweet|pin|e-?mail|print|like|comments?|follow|bookmark|save|facebook|twitter|linkedin|pinterest|reddit"
    r"|whatsapp|google|copy|link|this|on|it|via|to|us|article|story|more|\d++)\b\W*+){2,}+"
    r"|(?:advert\w*+|sponsored|related|topics|tags|categories|filed under)\b(?:\W*+$|:.*)"
    r"|(?:read|see|show|load) (?:more|later|next)\b.*)\W*+",
    re.I,
)
_LABEL = re.compile(r"(?:media|image|video) ?caption\b[,: ]*|(?:media|image|video) ?caption(?=(?-i:[A-Z]))", re.I)
_TAIL = re.compile(
    r"(?<=[.!?…\"”’)\]])(?<!\b[A-Z]\.)\s+(?=[A-Z(\[©])|\s+[|•·–—]\s+|\s+(?=[(\[©])"
)  # may begin a credit after a caption
MOST_TAILS = 6
_CONTINUED = re.compile(  # the end of a text that is not the end of its sentence, if the second part follows
    r"(?:(?<!\w)(?:approx|vols?|eds?|ca|cf|vs|est)\.)()$|(?<!\w)(?:no|nos|figs?|pp?|chs?|secs?)\.(\d)?$", re.I
)
_SPAM = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"\bclick (?:here|now|to)\b", r"\b(?:buy|order|shop|call|act) (?:now|today|online)\b", r"\bfree shipping\b",
        r"\b(?:best|lowest|cheap(?:est)?) prices?\b", r"\b\d+ ?% (?:off|discount)\b", r"\bon sale\b|\bfor sale\b",
        r"[$€£]\s?\d", r"!{2,}", r"\bsubscribe\b|\bsign up\b|\bnewsletter\b", r"\bfree (?:download|trial|delivery)\b",
        r"\blimited (?:time|offer)\b", r"\bdiscount\b|\bcoupon\b|\bpromo code\b", r"\b(?:casino|viagra|payday)\b",
        r"\bsee more\b|\bread more\b|\bfollow us\b", r"\bguarantee[ds]?\b", r"(?-i:\b[A-Z]{4,}(?: [A-Z]{4,}){2,}\b)",
        r"#\w+ #\w+ #\w+",
    )
)  # fmt: skip
# Every text with a mark of spam contains one of these, or capitals. Searching for these first is ten times as fast.
_SPAM_HINTS = (
    "click", "buy ", "order ", "shop ", "call ", "act ", "free ", " price", "% off", "discount", "sale", "$", "€", "£",
    "!!", "subscribe", "sign up", "newsletter", "limited", "coupon", "promo code", "casino", "viagra", "payday",
    " more", "follow us", "guarantee", "#",
)  # fmt: skip
_CAPITALS = re.compile(r"[A-Z]{4}")


@dataclass
class Text:
    """A cleaned text. `fails`: the names of the rules that it breaks."""

    kind: str
    text: str
    fails: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Vocabularies:
    """Lists of words.

    A text must not contain a bad word. If there are known words, most words of a text must be known.
    """

    bad: frozenset[str]
    known: frozenset[str] = frozenset()

    @classmethod
    def of(cls, bad: Path | None, known: Path | None) -> Vocabularies:
        """Read the lists from files with one word per line.

        `known` may be BERT's vocab.txt; its word pieces (##) are ignored.
        """
        own = Path(str(files("diptych_mine.pages") / "bad_words.txt"))
        vocabulary = _words(known, ("##", "[")) if known is not None else frozenset()
        if known is not None and not vocabulary:
            raise RecipeError(f"{known} holds no words; expected one word per line, as in BERT's vocab.txt")
        return cls(_words(bad or own, ("#",)), vocabulary)


@cache
def _words(path: Path, skipped: tuple[str, ...]) -> frozenset[str]:
    """Return the lines of a file in lower case, except lines that begin with one of `skipped`."""
    with explained(RecipeError, f"{path} is not a readable list of words", "expected UTF-8, one per line"):
        lines = text_of(path).lower().splitlines()
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith(skipped))


@cache
def english() -> Callable[[str], tuple[str, float, float]]:
    """Return a function from a text to (its language, the probability of this language, the probability of English)."""
    with requires_extra("diptych mine", "mine"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.nb_ptc = identifier.nb_ptc.astype(np.float32)  # float32 takes twice the memory (57 MB) and half the time

    def judge(text: str) -> tuple[str, float, float]:
        name, sure = identifier.classify(text)
        if name == "en":  # most texts are English, so returning here saves half the time
            return name, float(sure), float(sure)
        ranked = identifier.rank(text)
        return ranked[0][0], float(ranked[0][1]), float(dict(ranked)["en"])

    return judge


def clean(text: str, escaped: bool = True) -> str:
    """Return the text without tags, URLs, e-mail addresses, telephone numbers and control characters.

    Letters are folded by NFKC, such as full-width letters and ligatures. These are kept: ½, ², ₂, ①, ㎡, and accents
    that stand alone, such as ´. `escaped`: the text may have HTML entities, as in JSON and TSV files.
    """
    text = unescaped(text[:LONGEST]) if escaped else text[:LONGEST]
    if not (text.isascii() and text.isprintable()):
        text = _folded(text)
        text = text.encode("utf-8", "replace").decode()  # removes lone surrogates
        text = "".join(" " if one.isspace() else one for one in text if one.isprintable() or one.isspace())
    text = text[:LONGEST]
    if "<" in text:
        text = _TAGS.sub(" ", _INLINE.sub("", text))
    if "/" in text or "www" in text.lower():
        text = _ADDRESSES.sub(" ", text)
    if "@" in text:
        text = _MAIL.sub(" ", text)
    if _DIGIT.search(text):
        text = _TELEPHONE.sub(" ", text)
    return _LOOSE.sub(r"\1", " ".join(text.split()))


def unescaped(text: str) -> str:
    """Replace HTML entities that end with a semicolon. Without one, `&notes` would become `¬es`."""
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), text) if "&" in text else text


def _folded(text: str) -> str:
    kept = "".join(filter(_is_kept, set(text)))
    parts = re.split(f"([{re.escape(kept)}])", text) if kept else [text]
    return "".join(one if one in kept else unicodedata.normalize("NFKC", one) for one in parts)


@cache
def _is_kept(letter: str) -> bool:
    """Return True for a letter that NFKC would change to another text: a small or circled digit, or a lone accent."""
    form, *parts = unicodedata.decomposition(letter).split() or [""]
    inner = [chr(int(part, 16)) for part in parts] if form[:1] == "<" else []
    return form in _NUMBERS or (len(inner) > 1 and inner[0] == " ") or any(map(_is_kept, inner))


def sentences(text: str) -> list[str]:
    """Split an English text into sentences, by rules that know abbreviations.

    An empty text gives one empty sentence.
    """
    with requires_extra("diptych mine", "mine"):
        from sentencex import segment
    whole: list[str] = []
    for one in filter(None, map(str.strip, segment("en", text))):
        ends = _CONTINUED.search(whole[-1][-12:]) if whole else None
        if whole and (one[0] in "([" or (ends and (ends[1] is not None or one[0].isdigit()))):
            whole[-1] += f" {one}"
        else:
            whole.append(one)
    return whole or [""]


def without_credit(text: str) -> str:
    """Return a caption without a label before it and without credits after it. Only credits are returned unchanged."""
    text = text[label.end() :] if (label := _LABEL.match(text)) and label.end() < len(text) else text
    for tail in [*_TAIL.finditer(text[-200:])][-MOST_TAILS:]:
        at = max(0, len(text) - 200)
        if _BOILERPLATE.fullmatch(text, at + tail.end()) and words_of(text[: at + tail.start()]):
            return text[: at + tail.start()]
    return text


def is_title(text: str, title: str) -> bool:
    """Return True for a text that is the title of its page, or this title without the name of the site."""
    rest = title[len(text) :] if text and title.casefold().startswith(text.casefold()) else "a"
    return re.match(r"\s*(?:$|[|:•·–—-]\s)", rest) is not None


def words_of(text: str) -> list[str]:
    return _WORD.findall(text)


def judged(kind: str, raw: str, rules: TextRules, vocabularies: Vocabularies) -> Text | None:
    """Clean a text, and note all rules that it breaks, except `text_language`. Return None if nothing is left."""
    text = clean(raw, escaped=kind == "caption")  # the HTML parser has already decoded the entities of all other kinds
    text = without_credit(text) if rules.boilerplate and kind != "caption" else text
    if not text:
        return None
    words = words_of(text)
    lower = [word.lower() for word in words]
    broken = (
        ("file_name", rules.file_name and bool(_FILE.search(text) or _NUMBERED.match(text))),
        ("boilerplate", rules.boilerplate and bool(_BOILERPLATE.fullmatch(text[:200]))),
        ("short", rules.short is not None and len(words) < rules.short),
        ("long", rules.long is not None and len(words) > rules.long),
        ("bad_words", rules.bad_words and not vocabularies.bad.isdisjoint(lower)),
        ("spam", rules.spam is not None and spam_marks(text) >= rules.spam),
        ("repeats", rules.repeats is not None and len(set(lower)) < rules.repeats * len(lower)),
        ("letters", rules.letters is not None and _letters(text) < rules.letters),
        ("vocabulary", rules.vocabulary is not None and _unknown(lower, vocabularies.known) > rules.vocabulary),
    )
    return Text(kind, text, [name for name, breaks in broken if breaks])


def spam_marks(text: str) -> int:
    """Return the number of different marks of spam in a text."""
    lower = text.lower()
    if not (any(hint in lower for hint in _SPAM_HINTS) or _CAPITALS.search(text)):
        return 0
    return sum(1 for mark in _SPAM if mark.search(text))


def _letters(text: str) -> float:
    kept = text.replace(" ", "")
    return sum(map(str.isalpha, kept)) / len(kept)


def _unknown(words: Iterable[str], known: frozenset[str]) -> float:
    spelled = [part for word in words for part in _HYPHENS.split(word) if part.isalpha()] if known else []
    return sum(word not in known for word in spelled) / max(1, len(spelled))


def judge_languages(texts: Iterable[dict[str, Any]], rules: TextRules) -> None:
    """Apply the rule `text_language` to the texts of a shard, each given as `vars(text)`.

    This is three times as fast as going text by text, because the language model's 57 MB stay in the processor's cache.
    """
    if rules.text_language is None:
        return
    probability = english()
    foreign: dict[str, bool] = {}
    for entry in texts:
        text = entry["text"]
        if text not in foreign:
            long = len(words_of(text)) >= rules.text_language_from
            foreign[text] = long and probability(text)[2] < rules.text_language
        if foreign[text]:
            entry["fails"].append("text_language")
