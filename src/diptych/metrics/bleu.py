"""BLEU-1 to BLEU-4 of a corpus (Papineni et al., ACL 2002), as coco-caption computes it: 0 to 1; papers print x 100.

The statistics of an image are a row of nine numbers; those of a corpus, or of a bootstrap draw, are a sum of rows.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.tokenise import ORDERS, Ngram, Tokens, ngrams

_TINY, _SMALL = 1e-15, 1e-9  # coco-caption's guards against 0/0; they change the ninth digit


def bleu_counts(prediction: Tokens, references: Sequence[Tokens]) -> NDArray[np.float64]:
    """Return one row (9,) of counts: 4 of matches, 4 of n-grams, and the length of the closest reference.

    Matches are n-grams (n = 1..4) of the prediction that occur in a reference, clipped. Of two references that are
    equally close in length the shorter one counts.
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
    """Return BLEU-1..4, shape (..., 4), from summed counts, shape (..., 9)."""
    matched, written, closest = counts[..., :4], counts[..., 4:8], counts[..., 8]
    products = np.cumprod((matched + _TINY) / (written + _SMALL), axis=-1)
    scores: NDArray[np.float64] = products ** (1 / np.array(ORDERS))
    ratio = (written[..., 0] + _TINY) / (closest + _SMALL)
    # For a caption without words exp(1 - 1/ratio) is about exp(-1e15), which is 0 without a warning.
    brevity = np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1)), 1.0)
    return scores * brevity[..., None]
