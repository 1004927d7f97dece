"""ROUGE-L (Lin, 2004) as coco-caption computes it: 0 to 1, papers print it times 100.

It joins precision and recall of the longest common subsequence with beta = 1.2, which favours recall. Each is the best
over all references, so the two may be of different references.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

_BETA = 1.2


def rouge_l(prediction: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the score of one image; the corpus score is the mean. It is 0 without words on either side."""
    common = [(longest_common(prediction, reference), len(reference)) for reference in references if reference]
    if not prediction or not common:
        return 0.0
    precision = max(length for length, _ in common) / len(prediction)
    recall = max(length / size for length, size in common)
    if precision == 0:
        return 0.0
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence (Hunt and Szymanski, 1977: fast where few words repeat)."""
    places = defaultdict(list)
    for place, token in enumerate(second):
        places[token].append(place)
    ends: list[int] = []  # ends[n]: least end in `second` of a common subsequence of n + 1 words
    for token in first:
        for place in reversed(places.get(token, ())):
            rank = bisect_left(ends, place)
            ends[rank : rank + 1] = [place]
    return len(ends)
