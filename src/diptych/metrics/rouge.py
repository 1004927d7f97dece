"""ROUGE-L (Lin, 2004) as coco-caption computes it: 0 to 1, papers print it times 100.

It is the F-measure of precision and recall of the longest common subsequence, with beta = 1.2, which favours recall.
Precision and recall are each the best over all references, so they may be those of two different references.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

_BETA = 1.2


def rouge_l(prediction: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the score of an image, 0 if there are no words. The score of a corpus is the mean over images."""
    common = [(longest_common(prediction, reference), len(reference)) for reference in references if reference]
    if not prediction or not common:
        return 0.0
    precision = max(length for length, _ in common) / len(prediction)
    recall = max(length / size for length, size in common)
    if precision == 0:
        return 0.0
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence (Hunt and Szymanski, 1977)."""
    places = defaultdict(list)
    for place, token in enumerate(second):
        places[token].append(place)
    # ends[n] is the smallest index in `second` where a common subsequence of n + 1 words ends.
    ends: list[int] = []
    for token in first:
        for place in reversed(places.get(token, ())):
            rank = bisect_left(ends, place)
            ends[rank : rank + 1] = [place]
    return len(ends)
