"""Recall at K of text and image retrieval (Karpathy and Fei-Fei, CVPR 2015): 0 to 1, papers print it times 100.

An image may have several captions (five in Flickr30k and COCO). A search for captions succeeds at K if any caption of
the image is among the first K, a search for images if the caption's only image is.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.metrics.tokenise import tokens_of
from diptych.runtime.errors import DataError

# Name of retrieval by what is searched: captions with an image (TR in papers), images with a caption (IR).
RECALLS = {"captions": "text retrieval", "pictures": "image retrieval"}


@dataclass(frozen=True)
class RetrievalRanks:
    """Ranks of the first right item, from 0. A wrong item with an equal score ranks before a right one."""

    of_captions: NDArray[np.int64]  # (images,), searching captions with an image
    of_pictures: NDArray[np.int64]  # (captions,), searching images with a caption


def same_texts(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return a group number for each text; texts with the same words share it, whatever their case and punctuation."""
    return same_images([" ".join(tokens_of(text)) or text.strip() for text in texts])


def same_images(contents: Sequence[Hashable]) -> NDArray[np.int64]:
    """Return a group number for each image; images of equal content have the same number."""
    numbers = {one: number for number, one in enumerate(dict.fromkeys(contents))}
    return np.array([numbers[one] for one in contents], dtype=np.int64)


def retrieval_ranks(
    scores: ArrayLike,
    picture_of: Sequence[int],
    texts: Sequence[str] | None = None,
    contents: Sequence[Hashable] | None = None,
) -> RetrievalRanks:
    """Rank both ways from `scores` (images, captions); `picture_of` (captions,) is the row of each caption's image.

    With `texts` (captions,), a caption with the words of a right one is right, and so is its image. With `contents`
    (images,), so are images of equal content and their captions. Without them such copies are wrong, as in the papers.
    Raises DataError for shapes that do not fit, NaN, and an image without a caption.
    """
    table = np.asarray(scores, dtype=np.float64)
    owners = np.asarray(picture_of, dtype=np.int64)
    if table.ndim != 2 or owners.shape != table.shape[1:]:
        raise DataError(f"scores of shape {table.shape} with {owners.size} captions; expected (images, captions)")
    if np.isnan(table).any():
        raise DataError("a score is NaN, so nothing can be ranked; look for the step where the model broke")
    if set(owners.tolist()) != set(range(len(table))):
        raise DataError(
            f"captions of images {sorted(set(owners.tolist()))[:5]}...; every image from 0 to {len(table) - 1} needs "
            "a caption"
        )
    same = np.arange(len(owners)) if texts is None else same_texts(texts)
    images = np.arange(len(table)) if contents is None else same_images(contents)
    has = np.zeros((len(table), same.max() + 1), dtype=bool)
    has[images[owners], same] = True
    own = has[images][:, same]
    right = np.where(own, table, -np.inf)
    of_captions = ((table >= right.max(axis=1, keepdims=True)) & ~own).sum(axis=1)
    of_pictures = ((table >= right.max(axis=0)) & ~own).sum(axis=0)
    return RetrievalRanks(of_captions.astype(np.int64), of_pictures.astype(np.int64))


def recalls(ranks: RetrievalRanks, at: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
    """Return {"text retrieval R@1": ..., "image retrieval R@1": ..., ...}: TR and IR in papers."""
    both = {"captions": ranks.of_captions, "pictures": ranks.of_pictures}
    return {f"{RECALLS[asks]} R@{k}": float(np.mean(rank < k)) for asks, rank in both.items() for k in at}


def rank_of(scores: ArrayLike, right: ArrayLike) -> int:
    """Return the rank of the first right item of one query, from 0; ties count against it.

    `scores` and `right` (booleans) are (items,). Items outside a shortlist have the score -inf, so a right one of them
    ranks after all wrong ones. Raises DataError for unequal shapes, NaN, and no right item.
    """
    values, own = np.asarray(scores, dtype=np.float64), np.asarray(right, dtype=bool)
    if values.shape != own.shape or values.ndim != 1:
        raise DataError(f"scores of shape {values.shape}, `right` of shape {own.shape}; expected one of each per item")
    if np.isnan(values).any():
        raise DataError("a score is NaN, so nothing can be ranked; look for the step where the model broke")
    if not own.any():
        raise DataError("no right answer is among the ranked items, so the query has no rank")
    return int((values[~own] >= values[own].max()).sum())


def recall_by_chance(right: int, of: int, at: int) -> float:
    """Return the expected recall at K of a random ranking of `of` items, `right` of them right.

    It is 1 - C(of - right, K) / C(of, K).
    """
    return 1.0 if at >= of else 1 - comb(of - right, at) / comb(of, at)
