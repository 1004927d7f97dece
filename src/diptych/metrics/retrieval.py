"""Recall at K of retrieval both ways, as Karpathy and Fei-Fei (CVPR 2015) report it: 0 to 1, papers print it times 100.

A picture may have several captions (five in Flickr30k and COCO). A search for captions succeeds at K where any caption
of the picture is among the first K; a search for a picture where its only picture is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.runtime.errors import DataError

# What a query asks for, and what finding it is called: a picture asks for captions (papers: TR), a caption for
# pictures (IR).
RECALLS = {"captions": "text retrieval", "pictures": "image retrieval"}


@dataclass(frozen=True)
class RetrievalRanks:
    """How many wrong items come before the first right one, from 0. A wrong one with an equal score comes before it."""

    of_captions: NDArray[np.int64]  # (pictures,), searching captions with a picture
    of_pictures: NDArray[np.int64]  # (captions,), searching pictures with a caption


def retrieval_ranks(scores: ArrayLike, picture_of: Sequence[int]) -> RetrievalRanks:
    """`scores` has a row a picture and a column a caption; `picture_of` names the row that each caption belongs to."""
    table = np.asarray(scores, dtype=np.float64)
    owners = np.asarray(picture_of, dtype=np.int64)
    if table.ndim != 2 or owners.shape != table.shape[1:]:
        raise DataError(
            f"scores of shape {table.shape} with {owners.size} captions; wanted one row a picture, one column a caption"
        )
    if np.isnan(table).any():
        raise DataError("a score is NaN, so nothing can be ranked; look for the step where the model broke")
    if set(owners.tolist()) != set(range(len(table))):
        raise DataError(
            f"captions belong to pictures {sorted(set(owners.tolist()))[:5]}..., not to each of 0..{len(table) - 1}"
        )
    own = owners[None, :] == np.arange(len(table))[:, None]
    best = np.where(own, table, -np.inf).max(axis=1, keepdims=True)
    of_captions = ((table >= best) & ~own).sum(axis=1)
    of_pictures = ((table >= table[owners, np.arange(len(owners))]) & ~own).sum(axis=0)
    return RetrievalRanks(of_captions.astype(np.int64), of_pictures.astype(np.int64))


def recalls(ranks: RetrievalRanks, at: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
    """{"text retrieval R@1": ..., "image retrieval R@1": ..., ...}: in papers TR and IR."""
    both = {"captions": ranks.of_captions, "pictures": ranks.of_pictures}
    return {f"{RECALLS[asks]} R@{k}": float(np.mean(rank < k)) for asks, rank in both.items() for k in at}


def rank_of(scores: ArrayLike, right: ArrayLike) -> int:
    """How many wrong ones come before the first right one, from 0, for one query; ties count against it.

    What a shortlist left out has the score -inf: a right one that was left out comes after everything wrong.
    """
    values, own = np.asarray(scores, dtype=np.float64), np.asarray(right, dtype=bool)
    if values.shape != own.shape or values.ndim != 1:
        raise DataError(f"scores of shape {values.shape} with marks of shape {own.shape}; wanted a mark for each score")
    if np.isnan(values).any():
        raise DataError("a score is NaN, so nothing can be ranked; look for the step where the model broke")
    if not own.any():
        raise DataError("no right answer is among what was ranked, so the query has no rank")
    return int((values[~own] >= values[own].max()).sum())


def recall_by_chance(right: int, of: int, at: int) -> float:
    """Recall at K of a ranking drawn at random, with `right` right ones among `of`: 1 - C(of - right, K) / C(of, K)."""
    return 1.0 if at >= of else 1 - comb(of - right, at) / comb(of, at)
