"""Texts beside a picture: cleaned, then held against the rules. Each keeps its kind, and every rule that it breaks."""

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

from diptych.mining.settings import TextRules
from diptych.runtime.errors import RecipeError
from diptych.runtime.extras import requires_extra
from diptych.runtime.files import text_of

KINDS = ("figcaption", "alt", "title", "caption", "near")  # in the order in which ties between pairs are decided
LONGEST = 2_000  # letters that are looked at: a caption is no page

_TAGS = re.compile(r"<[^<>]{0,500}>")
_ADDRESSES = re.compile(r"(?:https?://|www\.)\S+", re.I)
_MAIL = re.compile(r"[^\s@]{1,64}@[^\s@]{1,255}\.\w+")
_TELEPHONE = re.compile(r"(?<!\w)\+?\(?\d(?:[\s().-]{0,2}\d){8,}(?!\w)")
_DIGIT = re.compile(r"\d")
_LOOSE = re.compile(r" +([,;:.!?])(?=\s|$)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'“‘(]?[A-Z0-9])")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_HYPHENS = re.compile(r"['’-]")
_FILE = re.compile(r"^[^\s/]*\.(?:jpe?g|png|gif|webp|bmp|tiff?|svg|avif|heic)$|\S+\.(?:jpe?g|png|gif|webp)$", re.I)
_NUMBERED = re.compile(
    r"^(?:img|dsc[nf]?|p|pict?|image|photo|picture|screen ?shot|untitled|scan|file|mvc|gopr|wp|vlcsnap)?"
    r"[\s_#()-]*\d[\d\s_.()x-]*$"
    r"|^(?=\S*\d)[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)+$",
    re.I,
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
# One of these is in whatever has a mark. To look for them takes a tenth of the time that the marks do.
_SPAM_HINTS = (
    "click", "buy ", "order ", "shop ", "call ", "act ", "free ", " price", "% off", "discount", "sale", "$", "€", "£",
    "!!", "subscribe", "sign up", "newsletter", "limited", "coupon", "promo code", "casino", "viagra", "payday",
    " more", "follow us", "guarantee", "#",
)  # fmt: skip
_CAPITALS = re.compile(r"[A-Z]{4}")


@dataclass
class Text:
    """`fails` names the rules that it breaks."""

    kind: str
    text: str
    fails: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Vocabularies:
    """Words that no text may hold; and words of which most of a text must be, or nothing where none are known."""

    bad: frozenset[str]
    known: frozenset[str] = frozenset()

    @classmethod
    def of(cls, bad: Path | None, known: Path | None) -> Vocabularies:
        """`known` is BERT's vocab.txt or any file with a word a line; pieces of words (##) do not count."""
        return cls(_bad_words(bad), _known(known) if known is not None else frozenset())


def _lines(path: Path) -> list[str]:
    try:
        return text_of(path).lower().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is no readable list of words ({error}); wanted one a line, in UTF-8") from error


@cache
def _bad_words(path: Path | None) -> frozenset[str]:
    lines = (
        (files("diptych.mining.pages") / "bad_words.txt").read_text("utf-8").splitlines()
        if path is None
        else _lines(path)
    )
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


@cache
def _known(path: Path) -> frozenset[str]:
    words = frozenset(line.strip() for line in _lines(path) if line.strip() and not line.startswith(("##", "[")))
    if not words:
        raise RecipeError(f"{path} holds no words; wanted one a line, as in BERT's vocab.txt")
    return words


@cache
def english() -> Callable[[str], tuple[str, float, float]]:
    """A function of text: its language, how probable that is, and how probable English is."""
    with requires_extra("diptych mine", "mine"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.nb_ptc = identifier.nb_ptc.astype(np.float32)  # 57 MB in place of half, and half the time to read a row

    def judge(text: str) -> tuple[str, float, float]:
        name, sure = identifier.classify(text)
        if name == "en":  # what most are, and told in half the time
            return name, float(sure), float(sure)
        ranked = identifier.rank(text)
        return ranked[0][0], float(ranked[0][1]), float(dict(ranked)["en"])

    return judge


def clean(text: str) -> str:
    """NFKC; tags, addresses, e-mail and telephone numbers out; one space between words; no control characters."""
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFKC", text[:LONGEST])
        text = text.encode("utf-8", "replace").decode()  # half surrogates
        text = "".join(" " if one.isspace() else one for one in text if one.isprintable() or one.isspace())
    text = text[:LONGEST]
    if "&" in text:
        text = html.unescape(text)
    if "<" in text:
        text = _TAGS.sub(" ", text)
    if "/" in text or "www" in text.lower():
        text = _ADDRESSES.sub(" ", text)
    if "@" in text:
        text = _MAIL.sub(" ", text)
    if _DIGIT.search(text):
        text = _TELEPHONE.sub(" ", text)
    return _LOOSE.sub(r"\1", " ".join(text.split()))


def sentences(text: str) -> list[str]:
    return _SENTENCE.split(text)


def words_of(text: str) -> list[str]:
    return _WORD.findall(text)


def judged(kind: str, raw: str, rules: TextRules, vocabularies: Vocabularies) -> Text | None:
    """The cleaned text with every rule that it breaks but `text_language`; None where nothing is left of it."""
    text = clean(raw)
    if not text:
        return None
    words = words_of(text)
    lower = [word.lower() for word in words]
    found = Text(kind, text)
    for name, broken in (
        ("file_name", rules.file_name and bool(_FILE.search(text) or _NUMBERED.match(text))),
        ("short", rules.short is not None and len(words) < rules.short),
        ("long", rules.long is not None and len(words) > rules.long),
        ("bad_words", rules.bad_words and not vocabularies.bad.isdisjoint(lower)),
        ("spam", rules.spam is not None and spam_marks(text) >= rules.spam),
        ("repeats", rules.repeats is not None and len(set(lower)) < rules.repeats * len(lower)),
        ("letters", rules.letters is not None and _letters(text) < rules.letters),
        ("vocabulary", rules.vocabulary is not None and _unknown(lower, vocabularies.known) > rules.vocabulary),
    ):
        if broken:
            found.fails.append(name)
    return found


def spam_marks(text: str) -> int:
    lower = text.lower()
    if not (any(hint in lower for hint in _SPAM_HINTS) or _CAPITALS.search(text)):
        return 0
    return sum(1 for mark in _SPAM if mark.search(text))


def _letters(text: str) -> float:
    kept = text.replace(" ", "")
    return sum(map(str.isalpha, kept)) / len(kept)


def _unknown(words: Iterable[str], known: frozenset[str]) -> float:
    if not known:
        return 0.0
    spelled = [part for word in words for part in _HYPHENS.split(word) if part.isalpha()]
    if not spelled:
        return 0.0
    return sum(word not in known for word in spelled) / len(spelled)


def judge_languages(texts: Iterable[dict[str, Any]], rules: TextRules) -> None:
    """The last rule, `text_language`, for all texts of a shard at once; each is `vars` of a Text.

    The model of languages has 40 MB and is read here and there: by itself it is thrice as fast as between two pages.
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
