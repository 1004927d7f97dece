"""Records seen in a mirror: left is right, in the picture and in words (VL-BERT's code, refcoco and vqa transforms)."""

import re
from collections.abc import Callable
from typing import Any

from diptych.core import Record, Regions
from diptych.core.record import Mark

SIDE = re.compile(r"\b(left|right)(?=(?:most|ward|wards|hand)?\b)", re.IGNORECASE)
Box = tuple[float, float, float, float]


def mirrored(record: Record) -> Record:
    """Everything that is said of the record, said of its mirror image. Twice is the record itself, up to rounding.

    A word is swapped wherever it stands, as in the code: that somebody is right becomes that somebody is left.
    """
    return record.changed(_CHANGES)


def swapped(text: str) -> str:
    """Left for right and right for left, in their letters' case: `Leftmost` becomes `Rightmost`."""
    return SIDE.sub(_other, text)


def mirrored_box(box: Box) -> Box:
    x1, y1, x2, y2 = box
    return 1 - x2, y1, 1 - x1, y2


def _other(found: re.Match[str]) -> str:
    word = found[1]
    other = "right" if word.lower() == "left" else "left"
    return other.upper() if word.isupper() else other.capitalize() if word[0].isupper() else other


_CHANGES: dict[Mark, Callable[[Any], Any]] = {
    "text": swapped,
    "tagged": swapped,
    "label": swapped,
    "box": mirrored_box,
    "cells": lambda row: row[::-1],
    "regions": Regions.mirrored,
}
