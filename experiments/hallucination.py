"""Hallucinated objects in captions (CHAIR, Rohrbach et al. 2018, arXiv 1809.02156), and repeated n-grams.

CHAIR_i is the share of named objects that are not in the image, CHAIR_s the share of captions that name one. An object
named twice in a caption counts twice, as in the authors' code. Omitted objects cost nothing, so recall is given too.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from diptych.metrics.tokenise import Tokens, ngrams, tokens_of
from diptych.runtime.errors import DataError


@dataclass(frozen=True)
class Hallucinations:
    """CHAIR and recall as fractions, 0 to 1."""

    per_object: float  # CHAIR_i
    per_caption: float  # CHAIR_s
    recall: float  # share of the kinds in the images that are named
    named: float  # objects named per caption


def hallucinations(
    captions: Mapping[str, str], there: Mapping[str, Set[str]], names: Mapping[str, str]
) -> Hallucinations:
    """Compare captions with the kinds of objects in each image (`there`), by key.

    `names` maps a word, or several, to a kind. Raises DataError for no captions and for an image missing in `there`.
    """
    if not captions:
        raise DataError("no captions, so there are no objects to check")
    if missing := [key for key in captions if key not in there]:
        raise DataError("the objects of this image are not known, so its caption cannot be checked", key=missing[0])
    longest = max((len(name.split()) for name in names), default=1)
    counts = []
    for key, caption in captions.items():
        kinds = mentions(tokens_of(caption), names, longest)
        false = [kind for kind in kinds if kind not in there[key]]
        counts.append((len(kinds), len(false), bool(false), len(there[key] & set(kinds)), len(there[key])))
    named, wrong, wrong_captions, recalled, present = map(sum, zip(*counts, strict=True))
    count = len(captions)
    return Hallucinations(wrong / max(named, 1), wrong_captions / count, recalled / max(present, 1), named / count)


def mentions(words: Tokens, names: Mapping[str, str], longest: int) -> list[str]:
    """Return the kinds that a text names, in order; the longest name at a place counts (`hot dog` is not a dog).

    `longest` is the number of words of the longest name.
    """
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
    """Return the share of n-grams that repeat one of the same caption, 0 to 1."""
    grams = [list(ngrams(tokens_of(caption), order)) for caption in captions]
    written, different = sum(map(len, grams)), sum(len(set(one)) for one in grams)
    return (written - different) / max(written, 1)
