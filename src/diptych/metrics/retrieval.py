"""Recall at K of text and image retrieval (Karpathy and Fei-Fei, CVPR 2015): from 0 to 1; papers multiply it by 100.

An image may have several captions (five in Flickr30k and COCO). A search for captions is right at K if any caption of
the image is among the first K. A search for images is right at K if the image of the caption is among the first K.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.metrics.tokenise import emoji_of, tokens_of
from diptych.runtime.errors import DataError

# What is searched -> name of the task: an image finds captions (TR in papers), or a caption finds images (IR).
RECALLS = {"captions": "text retrieval", "pictures": "image retrieval"}
_SIGNS = re.compile(r"(?<=\d)\s*([-–—.,:;])\s*(?=\d)|([£€¢])")  # so that `5 - 3` differs from `5 3`, and € from $


@dataclass(frozen=True)
class RetrievalRanks:
    """The rank of the first right item of each query, from 0.

    A wrong item ranks before a right item with an equal score.
    """

    of_captions: NDArray[np.int64]  # (images,): for each image, the rank of its first caption
    of_pictures: NDArray[np.int64]  # (captions,): for each caption, the rank of its image


def same_texts(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return a group number for each text.

    Texts with the same words and emoji have the same number. Case is ignored, and punctuation except between digits.
    """
    signs = [(emoji_of(text), *_SIGNS.findall(text)) for text in texts]
    words = [" ".join(tokens_of(text)) or text.strip() for text in texts]
    return same_images(list(zip(words, signs, strict=True)))


def same_images(contents: Sequence[Hashable]) -> NDArray[np.int64]:
    """Return a group number for each image. Images of equal content have the same number."""
    numbers = {one: number for number, one in enumerate(dict.fromkeys(contents))}
    return np.array([numbers[one] for one in contents], dtype=np.int64)


def retrieval_ranks(
    scores: ArrayLike,
    picture_of: Sequence[int],
    texts: Sequence[str] | None = None,
    contents: Sequence[Hashable] | None = None,
) -> RetrievalRanks:
    """Rank captions for each image and images for each caption, given `scores` (images, captions).

    `picture_of` (captions,): the image index of each caption. If `texts` (captions,) are given, captions with the same
    words count as the same caption. If `contents` (images,) are given, images of equal content count as the same image.
    By default such copies are wrong, as in the papers. Raises DataError for wrong shapes, NaN, and an image without a
    caption.
    """
    table = np.asarray(scores, dtype=np.float64)
    owners = np.asarray(picture_of, dtype=np.int64)
    if table.ndim != 2 or owners.shape != table.shape[1:]:
        raise DataError(f"found scores {table.shape} for {owners.size} captions, expected shape (images, captions)")
    if np.isnan(table).any():
        raise DataError("a score is NaN, so nothing can be ranked; check the features and weights for NaN")
    if set(owners.tolist()) != set(range(len(table))):
        raise DataError(
            f"found captions of the images {sorted(set(owners.tolist()))[:5]}, expected a caption for every "
            f"image from 0 to {len(table) - 1}"
        )
    same = np.arange(len(owners)) if texts is None else same_texts(texts)
    images = np.arange(len(table)) if contents is None else same_images(contents)
    has = np.zeros((len(table), same.max() + 1), dtype=bool)
    has[images[owners], same] = True
    own = has[images][:, same]
    best = [table.max(axis=axis, where=own, initial=-np.inf, keepdims=True) for axis in (1, 0)]
    of_captions, of_pictures = (((table >= one) & ~own).sum(axis=axis) for axis, one in zip((1, 0), best, strict=True))
    return RetrievalRanks(of_captions.astype(np.int64), of_pictures.astype(np.int64))


def recalls(ranks: RetrievalRanks, at: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
    """Return {"text retrieval R@1": ..., "image retrieval R@1": ..., ...}, which papers call TR and IR."""
    both = {"captions": ranks.of_captions, "pictures": ranks.of_pictures}
    return {f"{RECALLS[asks]} R@{k}": float(np.mean(rank < k)) for asks, rank in both.items() for k in at}


def rank_of(scores: ArrayLike, right: ArrayLike) -> int:
    """Return the rank of the first right item of a query, from 0.

    Wrong items rank before a right item with an equal score. `scores` and `right` (booleans) have the shape (items,).
    An item outside a shortlist must have the score -inf, so that it ranks last. Raises DataError for unequal shapes,
    for NaN, and if no item is right.
    """
    values, own = np.asarray(scores, dtype=np.float64), np.asarray(right, dtype=bool)
    if values.shape != own.shape or values.ndim != 1:
        raise DataError(f"found shapes {values.shape} (`scores`) and {own.shape} (`right`), expected (items,) for both")
    if np.isnan(values).any():
        raise DataError("a score is NaN, so nothing can be ranked; check the features and weights for NaN")
    if not own.any():
        raise DataError("no item in `right` is True, so the query has no rank; leave the query out")
    return int((values[~own] >= values[own].max()).sum())


def recall_by_chance(right: int, of: int, at: int) -> float:
    """Return the expected recall at K = `at` of a random ranking of `of` items, of which `right` are right.

    The value is 1 - C(of - right, K) / C(of, K).
    """
    return 1.0 if at >= of else 1 - comb(of - right, at) / comb(of, at)
