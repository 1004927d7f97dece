"""Area under the ROC curve, of two classes or of several, each against the others."""

import numpy as np
from numpy.typing import NDArray


def auroc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the chance that a positive item has a higher score than a negative one; equal scores count half.

    NaN if there are no positive or no negative items.
    """
    ours, others = int(positive.sum()), int((~positive).sum())
    if not ours or not others:
        return float("nan")
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (count.cumsum() - (count - 1) / 2)[place]  # the mean rank of equal scores, from 1
    return float((ranks[positive].sum() - ours * (ours + 1) / 2) / (ours * others))


def class_auroc(probabilities: NDArray[np.float64], right: NDArray[np.int64]) -> float:
    """Return the AUROC of the second of two classes; for more classes, the mean over those that items have.

    `probabilities` (items, classes); `right`: the class index of each item. NaN if all are of one class.
    """
    if probabilities.shape[1] == 2:
        return auroc(probabilities[:, 1], right == 1)
    there = [auroc(probabilities[:, number], right == number) for number in np.unique(right)]
    return float(np.mean(there)) if there else float("nan")


def accuracy(probabilities: NDArray[np.float64], right: NDArray[np.int64]) -> float:
    """Return the share of items whose likeliest class is right."""
    return float((probabilities.argmax(1) == right).mean())
