"""Measure hallucinated objects in captions (CHAIR, Rohrbach et al. 2018, arXiv 1809.02156), and repeated n-grams.

CHAIR_i is the share of named objects that are not in the image. CHAIR_s is the share of captions that name such an
object. An object named twice in a caption counts twice, as in the authors' code. CHAIR ignores omitted objects, so
recall is computed too.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from diptych.metrics.tokenise import Tokens, ngrams, tokens_of
from diptych.runtime.errors import DataError


@dataclass(frozen=True)
class Hallucinations:
    """CHAIR_i, CHAIR_s and recall as fractions from 0 to 1."""

    per_object: float  # CHAIR_i
    per_caption: float  # CHAIR_s
    recall: float  # share of the kinds in the images that captions name
    named: float  # mean number of objects that a caption names


def hallucinations(
    captions: Mapping[str, str], there: Mapping[str, Set[str]], names: Mapping[str, str]
) -> Hallucinations:
    """Compare captions with the objects in their images. `captions` and `there` are keyed by image.

    `there` has the kinds of objects in each image, such as "dog". `names` maps a name of one or more words to its kind.
    Raises DataError if there are no captions, or if `there` lacks an image.
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
    """Return the kinds of objects that a text names, in order. If several names fit at one position, the longest
    counts: `hot dog` does not name a dog.

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
    """Return the share (0 to 1) of n-grams of length `order` that occur earlier in the same caption."""
    grams = [list(ngrams(tokens_of(caption), order)) for caption in captions]
    written, different = sum(map(len, grams)), sum(len(set(one)) for one in grams)
    return (written - different) / max(written, 1)
