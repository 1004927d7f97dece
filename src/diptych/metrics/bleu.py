"""BLEU-1 to BLEU-4 of a corpus (Papineni et al., ACL 2002) as in coco-caption, 0 to 1; papers print it times 100.

Each image has a row of nine counts. The score of a corpus, or of a bootstrap draw, is computed from the sum of its
rows.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.tokenise import ORDERS, Ngram, Tokens, ngrams

_TINY, _SMALL = 1e-15, 1e-9  # coco-caption adds these to avoid 0/0; they change only the ninth digit


def bleu_counts(prediction: Tokens, references: Sequence[Tokens]) -> NDArray[np.float64]:
    """Return a row (9,): counts of matches and of n-grams (n = 1 to 4), and the length of the closest reference.

    A match is an n-gram of the prediction that occurs in a reference. It counts at most as often as in a single
    reference. If the lengths of two references are equally close, the shorter reference is used.
    """
    matched, written = [], []
    for order in ORDERS:
        counts = Counter(ngrams(prediction, order))
        most: Counter[Ngram] = Counter()
        for reference in references:
            most |= Counter(ngrams(reference, order))
        matched.append((counts & most).total())
        written.append(counts.total())
    closest = min((abs(len(reference) - len(prediction)), len(reference)) for reference in references)[1]
    return np.array([*matched, *written, closest], dtype=np.float64)


def bleu_scores(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return BLEU-1 to BLEU-4, of shape (..., 4), from summed counts of shape (..., 9)."""
    matched, written, closest = counts[..., :4], counts[..., 4:8], counts[..., 8]
    products = np.cumprod((matched + _TINY) / (written + _SMALL), axis=-1)
    scores: NDArray[np.float64] = products ** (1 / np.array(ORDERS))
    ratio = (written[..., 0] + _TINY) / (closest + _SMALL)
    # A caption without words has a ratio near 0: then exp(1 - 1/ratio) is 0, without a warning from numpy.
    brevity = np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1)), 1.0)
    return scores * brevity[..., None]
