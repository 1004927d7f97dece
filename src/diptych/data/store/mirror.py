"""Flip records: of mirrored images (VL-BERT's refcoco and vqa transforms), and of images that EXIF turns or mirrors.

Of a mirrored image, boxes are flipped horizontally, and "left" and "right" are swapped in texts, as are the short forms
of RefCOCO's expressions. What is in quotes stays, because it is usually written in the image.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from diptych.core import Record, Regions
from diptych.core.record import Mark
from diptych.runtime.errors import DataError
from diptych.vision.image_files import orientation

QUOTED = r"""\"[^"]*"|“[^”]*”|(?<!\w)'[^']*'(?!\w)"""
JOINED = "top|bottom|upper|lower|front|back|center|middle|mid|far"  # parts of a word before a side, as in topleft
SIDE = re.compile(rf"{QUOTED}|\b(?:{JOINED})?(left|right|(?-i:lft|rt)(?! ?\d))(?=(?:most|side|wards?|hand)?\b)", re.I)
OTHER = {"left": "right", "right": "left", "lft": "rt", "rt": "lft"}
# Words for sides: German, Dutch, Scandinavian, French, Spanish, Portuguese, Italian; then Slavic, Finnish and others.
WEST = "links|rechts|(?:link|recht)er?[mnrs]?|venstre|hø[jy]re|vänster|höger|gauche|droite|izquierd[ao]s?|derech[ao]"
EAST = r"esquerd[ao]|direit[ao]|sinistr[ao]|destr[ao]|lewe?[aąejoy]|prawe?[aąejoy]|vasemm\w+|oikea\w*|sağ\w*|solunda"
FOREIGN = re.compile(rf"[^\W\d_a-zªºµÀ-ɏḀ-ỿ]|\b(?:{WEST}|{EAST}|v?(?:lev|prav)[oáéý]|kiri|kanan|trái|phải)\b", re.I)
# {EXIF's orientation: steps from the stored to the upright image}. d: flip along the diagonal from the top left corner;
# x, y: then flip horizontally, vertically.
STEPS = {2: "x", 3: "xy", 4: "y", 5: "d", 6: "dx", 7: "dxy", 8: "dy"}


def mirrored(record: Record) -> Record:
    """Return the record of the flipped image. Flipping twice restores the record, up to rounding.

    Every "left" and "right" outside quotes is swapped, whatever its meaning, as in VL-BERT's code: "she is right"
    becomes "she is left".
    """
    return record.changed(_CHANGES)


def swapped(text: str) -> str:
    """Swap "left" and "right" in a text, but not in quotes. Upper and lower case stay: `Topleft` becomes `Topright`."""
    return SIDE.sub(_other, text)


def is_foreign(record: Record) -> bool:
    """Return True if a text of the record has a letter that is not Latin, or a side's name that is not English.

    Such names are not swapped, so such a record must not be mirrored.
    """
    return any(map(FOREIGN.search, record.marked("text", "tagged")))


def turn_of(record: Record) -> int:
    """Return how EXIF turns or mirrors the image of a record with boxes, a key of `STEPS`. Only the header is read.

    1: not, or the record has no boxes, or the image cannot be read.
    """
    with suppress(DataError):
        return orientation(record.image) if record.image is not None and record.marked("box") else 1
    return 1


def upright(record: Record, turn: int) -> Record:
    """Convert a record with boxes, masks and a size of the stored image to one of the upright image.

    `turn`: EXIF's orientation. Texts and regions stay the same.
    """
    for step in STEPS.get(turn, ""):
        record = record.changed(_FLIPS[step])
    return replace(record, size=record.size[::-1]) if record.size and turn in range(5, 9) else record


def _other(match: re.Match[str]) -> str:
    word = match[1] or ""  # of a text in quotes, nothing is swapped
    other = OTHER.get(word.lower(), "")
    other = other.upper() if word.isupper() else other.capitalize() if word[:1].isupper() else other
    return match[0].removesuffix(word) + other


_FLIPS: dict[str, dict[Mark, Callable[[Any], Any]]] = {
    "d": {"box": lambda b: (b[1], b[0], b[3], b[2]), "cells": lambda m: tuple(map("".join, zip(*m, strict=True)))},
    "x": {"box": lambda b: (1 - b[2], b[1], 1 - b[0], b[3]), "cells": lambda m: tuple(row[::-1] for row in m)},
    "y": {"box": lambda b: (b[0], 1 - b[3], b[2], 1 - b[1]), "cells": lambda m: m[::-1]},
}
_CHANGES: dict[Mark, Callable[[Any], Any]] = {
    "text": swapped,
    "tagged": swapped,
    "label": swapped,
    **_FLIPS["x"],
    "regions": Regions.mirrored,
}
