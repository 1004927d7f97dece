"""BLEU-1 to BLEU-4 of a corpus (Papineni et al., ACL 2002), as coco-caption counts it: 0 to 1; papers print x 100.

A picture's sufficient statistics are one row of nine numbers, so a corpus, or a bootstrap draw of it, is a sum of rows.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.tokenise import ORDERS, Ngram, Tokens, ngrams

_TINY, _SMALL = 1e-15, 1e-9  # coco-caption's guards against 0/0; they show in the ninth digit


def bleu_counts(prediction: Tokens, references: Sequence[Tokens]) -> NDArray[np.float64]:
    """Row (9,): n-grams found in a reference (clipped) for n = 1..4, n-grams written, the closest reference's length.

    Of two references equally close the shorter counts.
    """
    found, written = [], []
    for order in ORDERS:
        counts = Counter(ngrams(prediction, order))
        most: Counter[Ngram] = Counter()
        for reference in references:
            most |= Counter(ngrams(reference, order))
        found.append((counts & most).total())
        written.append(counts.total())
    closest = min((abs(len(reference) - len(prediction)), len(reference)) for reference in references)[1]
    return np.array([*found, *written, closest], dtype=np.float64)


def bleu_scores(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """BLEU-1..4, shape (..., 4), of summed counts, shape (..., 9)."""
    found, written, closest = counts[..., :4], counts[..., 4:8], counts[..., 8]
    products = np.cumprod((found + _TINY) / (written + _SMALL), axis=-1)
    scores: NDArray[np.float64] = products ** (1 / np.array(ORDERS))
    ratio = (written[..., 0] + _TINY) / (closest + _SMALL)
    # exp(1 - 1/ratio) of a caption without words is exp(-1e15 or so): 0, and no warning
    brevity = np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1)), 1.0)
    return scores * brevity[..., None]
