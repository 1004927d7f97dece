"""Features of a pair of image and text for the weak scorer (`mining/scorer.py`). Each feature has a name."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from diptych_mine.judge.scoring import Pair
from diptych_mine.judge.statistics import NAMES as STATISTICS
from diptych_mine.pages.texts import english, spam_marks, words_of
from diptych_mine.rules import KINDS

TEXT = ("words", "letters", "word_length", "differ", "digits", "marks", "capitals", "english",
        *(f"kind_{kind}" for kind in KINDS))  # fmt: skip
PICTURE = ("width", "height", "ratio", "density", *STATISTICS)
ACROSS = ("file_name", "page_title")
SEEN = ("named_seen", "named_unseen", "seen_unnamed", "named", "count_agrees")
MODEL = ("similarity", "match")
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
CERTAIN = 0.5  # a class is seen in an image if a region has at least this probability of the class


def of_text(pair: Pair) -> list[float]:
    """Return the features whose names are in TEXT."""
    words = words_of(pair.text)
    lower = [word.lower() for word in words]
    letters = sum(map(len, words))
    return [
        len(words), letters, letters / max(1, len(words)), len(set(lower)) / max(1, len(lower)),
        sum(map(str.isdigit, pair.text)) / max(1, len(pair.text)), spam_marks(pair.text),
        sum(word[0].isupper() for word in words) / max(1, len(words)), english()(pair.text)[2],
        *(float(pair.kind == kind) for kind in KINDS),
    ]  # fmt: skip


def of_picture(row: Mapping[str, Any], statistics: np.ndarray[Any, Any]) -> list[float]:
    """Return the features whose names are in PICTURE, from the image's size in pixels and bytes, and its statistics."""
    width, height = float(row.get("width") or 1), float(row.get("height") or 1)
    density = float(row.get("bytes") or 0) / (width * height)
    return [np.log(width), np.log(height), np.log(width / height), density, *statistics]


def across(pair: Pair) -> list[float]:
    """Return how many words the text shares with the file name, and how many with the page title."""
    words = {word.lower() for word in words_of(pair.text)}
    address = str(pair.row.get("address") or "")
    stem = PurePosixPath(urlsplit(address).path).stem if len(address) < 2_000 else ""
    name = {word for word in re.split(r"[^a-z]+", stem.lower()) if len(word) > 2}
    title = {word.lower() for word in words_of(str(pair.row.get("title") or "")) if len(word) > 3}
    return [float(len(words & name)), float(len(words & title))]


def named_in(text: str, classes: Mapping[str, str]) -> dict[str, int]:
    """Return class -> number of its objects in the text, such as 2 for "two dogs". `classes` maps words to classes."""
    numbers: dict[str, int] = {}
    lower = [word.lower() for word in words_of(text)]
    for place, word in enumerate(lower):
        name = classes.get(word) or classes.get(word.removesuffix("s")) or classes.get(word.removesuffix("es"))
        if name is not None:
            before = lower[max(0, place - 3) : place]
            plural = 2 if name != classes.get(word) else 1
            numbers[name] = next((NUMBERS[one] for one in before if one in NUMBERS), plural)
    return numbers


def seen_and_named(named: Mapping[str, int], seen: Mapping[str, tuple[float, int]]) -> list[float]:
    """Return the features whose names are in SEEN.

    `named`: class -> number of its objects in the text. `seen`: class -> highest probability and number of regions.
    """
    certain = {name for name, (most, _) in seen.items() if most >= CERTAIN}
    hits = [seen.get(name, (0.0, 0))[0] for name in named]
    agrees = [float(min(count, 2) == min(seen[name][1], 2)) for name, count in named.items() if name in seen]
    return [
        float(np.mean(hits)) if hits else 0.5, float(sum(hit < CERTAIN for hit in hits)),
        float(len(certain - set(named))) / max(1, len(certain)), float(len(named)),
        float(np.mean(agrees)) if agrees else 0.5,
    ]  # fmt: skip
