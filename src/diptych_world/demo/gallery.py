"""The words of captions that name objects, of which those that are not in the image are marked in the demo's report."""

import re
from collections.abc import Mapping

from diptych.core import Record
from diptych.runs.reports.report import Word
from diptych_world.kinds import names_of_kinds

Kinds = Mapping[str, str]  # {lower-case word: kind of object that the word names}

STORYBOOK: Kinds = names_of_kinds()
_PIECES = re.compile(r"[^\W_]+|[\W_]+")


def words(caption: str, record: Record) -> tuple[Word, ...]:
    """Split a caption into words, and mark each word that names an absent object."""
    gone = absent_words(caption, record)
    return tuple(Word(piece, piece.lower() in gone) for piece in _PIECES.findall(caption))


def named_kinds(text: str) -> dict[str, str]:
    """Return {word of the text: kind of object that it names}, without words that name no object."""
    return {piece: STORYBOOK[piece] for piece in _PIECES.findall(text.lower()) if piece in STORYBOOK}


def absent_words(caption: str, record: Record) -> dict[str, str]:
    there = {thing.kind for thing in record.objects}
    return {word: kind for word, kind in named_kinds(caption).items() if kind not in there}
