"""The area under the ROC curve for two classes. For more classes, each class is compared with all others."""

import numpy as np
from numpy.typing import NDArray


def auroc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the probability that a positive item has a higher score than a negative item; equal scores count half.

    NaN if there are no positive or no negative items.
    """
    ours, others = int(positive.sum()), int((~positive).sum())
    if not ours or not others:
        return float("nan")
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (count.cumsum() - (count - 1) / 2)[place]  # ranks count from 1; equal scores get their mean rank
    return float((ranks[positive].sum() - ours * (ours + 1) / 2) / (ours * others))


def class_auroc(probabilities: NDArray[np.float64], right: NDArray[np.int64]) -> float:
    """Return the AUROC of the second of two classes.

    For more classes, return the mean over all classes that occur. `probabilities`: (items, classes). `right`: the class
    index of each item. NaN if all items have the same class.
    """
    if probabilities.shape[1] == 2:
        return auroc(probabilities[:, 1], right == 1)
    there = [auroc(probabilities[:, number], right == number) for number in np.unique(right)]
    return float(np.mean(there)) if there else float("nan")


def accuracy(probabilities: NDArray[np.float64], right: NDArray[np.int64]) -> float:
    """Return the share of items whose most probable class is right."""
    return float((probabilities.argmax(1) == right).mean())
