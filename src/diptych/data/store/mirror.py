"""Records seen in a mirror: left is right, in the picture and in words (VL-BERT's code, refcoco and vqa transforms)."""

from __future__ import annotations

import re
from dataclasses import replace

from diptych.core import Choices, Record

SIDE = re.compile(r"\b(left|right)(?=(?:most|ward|wards|hand)?\b)", re.IGNORECASE)
Box = tuple[float, float, float, float]


def mirrored(record: Record) -> Record:
    """Everything that is said of the record, said of its mirror image. Twice is the record itself, up to rounding.

    A word is swapped wherever it stands, as in the code: that somebody is right becomes that somebody is left.
    """
    return replace(
        record,
        captions=tuple(map(swapped, record.captions)),
        generated=tuple(replace(one, text=swapped(one.text)) for one in record.generated),
        questions=tuple(
            replace(one, text=swapped(one.text), answers=tuple(map(swapped, one.answers))) for one in record.questions
        ),
        expressions=tuple(
            replace(one, text=swapped(one.text), box=mirrored_box(one.box)) for one in record.expressions
        ),
        choices=tuple(map(_mirrored_choices, record.choices)),
        statements=tuple(replace(one, text=swapped(one.text)) for one in record.statements),
        objects=tuple(
            replace(thing, box=mirrored_box(thing.box), mask=tuple(row[::-1] for row in thing.mask))
            for thing in record.objects
        ),
        relations=tuple((subject, swapped(relation), other) for subject, relation, other in record.relations),
        regions=None if record.regions is None else record.regions.mirrored(),
    )


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


def _mirrored_choices(choices: Choices) -> Choices:
    return replace(
        choices,
        question=swapped(choices.question),
        answers=tuple(map(swapped, choices.answers)),
        rationales=tuple(map(swapped, choices.rationales)),
    )
