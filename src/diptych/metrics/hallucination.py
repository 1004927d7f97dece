"""Objects that captions name and pictures do not show (CHAIR, Rohrbach et al. 2018, arXiv 1809.02156), and repeats.

CHAIR_i is the share of named objects that are not there, CHAIR_s the share of captions that name one. An object named
twice in a caption counts twice, as in the authors' code; what is not named costs nothing, so recall stands beside them.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from diptych.metrics.tokenise import Tokens, ngrams, tokens_of
from diptych.runtime.errors import DataError


@dataclass(frozen=True)
class Hallucinations:
    """Fractions, 0 to 1."""

    per_object: float  # CHAIR_i
    per_caption: float  # CHAIR_s
    recall: float  # of the kinds that are there, those that are named
    named: float  # objects a caption


def hallucinations(
    captions: Mapping[str, str], there: Mapping[str, Set[str]], names: Mapping[str, str]
) -> Hallucinations:
    """`there`: the kinds in each picture. `names`: a word, or several, to the kind named."""
    if not captions:
        raise DataError("no captions, so nothing to look for in the pictures")
    if missing := [key for key in captions if key not in there]:
        raise DataError("nobody said what this picture shows, so that no object named can be checked", key=missing[0])
    longest = max((len(name.split()) for name in names), default=1)
    named = wrong = liars = found = present = 0
    for key, caption in captions.items():
        kinds = mentions(tokens_of(caption), names, longest)
        false = [kind for kind in kinds if kind not in there[key]]
        named, wrong, liars = named + len(kinds), wrong + len(false), liars + bool(false)
        found, present = found + len(there[key] & set(kinds)), present + len(there[key])
    count = len(captions)
    return Hallucinations(wrong / max(named, 1), liars / count, found / max(present, 1), named / count)


def mentions(words: Tokens, names: Mapping[str, str], longest: int) -> list[str]:
    """The kinds that a text names, in order; of names at one place the longest (`hot dog` is no dog)."""
    kinds, place = [], 0
    while place < len(words):
        for size in range(min(longest, len(words) - place), 0, -1):
            if (kind := names.get(" ".join(words[place : place + size]))) is not None:
                kinds.append(kind)
                place += size - 1
                break
        place += 1
    return kinds


def repeated_ngrams(captions: Sequence[str], order: int) -> float:
    """The share of n-grams that stood in the same caption before, 0 to 1."""
    written = repeated = 0
    for caption in captions:
        grams = list(ngrams(tokens_of(caption), order))
        written, repeated = written + len(grams), repeated + len(grams) - len(set(grams))
    return repeated / max(written, 1)
