"""ROUGE-L (Lin, 2004) as coco-caption computes it: 0 to 1, papers print it times 100.

Precision and recall of the longest common subsequence, each its best over the references (not of one reference),
joined with beta = 1.2, which leans towards recall.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

_BETA = 1.2


def rouge_l(prediction: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Of one picture; the corpus score is the mean. Without words on either side it is 0."""
    common = [(longest_common(prediction, reference), len(reference)) for reference in references if reference]
    if not prediction or not common:
        return 0.0
    precision = max(length for length, _ in common) / len(prediction)
    recall = max(length / size for length, size in common)
    if precision == 0:
        return 0.0
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence, by Hunt and Szymanski (1977): quick where few words repeat."""
    places = defaultdict(list)
    for place, token in enumerate(second):
        places[token].append(place)
    ends: list[int] = []  # ends[n]: where the common subsequence of n + 1 words that ends earliest in `second` ends
    for token in first:
        for place in reversed(places.get(token, ())):
            rank = bisect_left(ends, place)
            ends[rank : rank + 1] = [place]
    return len(ends)
