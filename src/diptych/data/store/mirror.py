"""Flip records horizontally: boxes, and "left" and "right" in texts (VL-BERT's refcoco and vqa transforms)."""

import re
from collections.abc import Callable
from typing import Any

from diptych.core import Record, Regions
from diptych.core.record import Mark

SIDE = re.compile(r"\b(left|right)(?=(?:most|ward|wards|hand)?\b)", re.IGNORECASE)
Box = tuple[float, float, float, float]


def mirrored(record: Record) -> Record:
    """Return the record of the flipped image. Flipping twice restores the record, up to rounding.

    Every "left" and "right" is swapped, whatever its meaning, as in VL-BERT's code: "she is right" becomes "she is
    left".
    """
    return record.changed(_CHANGES)


def swapped(text: str) -> str:
    """Swap "left" and "right" in a text, and keep upper and lower case: `Leftmost` becomes `Rightmost`."""
    return SIDE.sub(_other, text)


def mirrored_box(box: Box) -> Box:
    """Flip a box (x1, y1, x2, y2) in fractions of the image."""
    x1, y1, x2, y2 = box
    return 1 - x2, y1, 1 - x1, y2


def _other(match: re.Match[str]) -> str:
    word = match[1]
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
