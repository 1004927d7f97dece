"""Confidence intervals of scores by percentile bootstrap (Efron, 1979; paired comparison: Koehn, EMNLP 2004).

Images are resampled, because the questions or captions of an image are not independent. A score must be a function of a
sum of rows, with a row per image. For instance, mean CIDEr has rows (score, 1), and BLEU has rows of counts. The row of
an image is the same in every draw. CIDEr's document frequencies are therefore always those of the whole set.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.runtime.errors import DataError

Rows = NDArray[np.float64]
Statistic = Callable[[Rows], Rows]  # sums (draws, K) over the rows of each bootstrap draw -> scores (draws,)

_AT_ONCE = 4_000_000  # draws are computed in groups: draws x images is at most this number (32 MB)


@dataclass(frozen=True)
class Interval:
    """A score with its confidence interval."""

    value: float
    low: float
    high: float


def ratio(sums: Rows) -> Rows:
    """Return the mean score, given sums (..., 2) of rows (sum of scores, number of scores)."""
    scores: Rows = sums[..., 0] / sums[..., 1]
    return scores


def rows_by_picture(scores: ArrayLike, pictures: Sequence[str] | None = None) -> Rows:
    """Return rows (sum of scores, number of scores), one per image in the order of their first scores.

    `pictures`: the image of each score; by default, each score has its own image. Raises DataError for unequal lengths.
    """
    values = np.asarray(scores, dtype=np.float64)
    if pictures is None:
        return np.stack([values, np.ones_like(values)], axis=1)
    if len(pictures) != len(values):
        raise DataError(f"found {len(values)} scores and {len(pictures)} images; pass one image for each score")
    places: dict[str, int] = {}
    owners = np.array([places.setdefault(picture, len(places)) for picture in pictures], dtype=np.int64)
    return np.stack([np.bincount(owners, values), np.bincount(owners)], axis=1).astype(np.float64)


def bootstrap_interval(
    rows: Rows, statistic: Statistic = ratio, *, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return the interval of a score, given `rows` (images, K).

    The same seed gives the same interval. Raises DataError if there are no rows or no draws, and for a level outside 0
    to 1.
    """
    return _interval(lambda summed: statistic(summed(rows)), _draws(len(rows), draws, seed), level)


def paired_interval(
    first: Rows, second: Rows, statistic: Statistic = ratio, *, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return the interval of the score of `first` minus the score of `second`.

    Both have rows (images, K) for the same images in the same order, and each draw takes the same images from both.
    Raises DataError for unequal shapes, and in the same cases as `bootstrap_interval`.
    """
    if first.shape != second.shape:
        raise DataError(f"found rows of shapes {first.shape} and {second.shape}; pass scores of the same images")

    def difference(summed: Callable[[Rows], Rows]) -> Rows:
        return statistic(summed(first)) - statistic(summed(second))

    return _interval(difference, _draws(len(first), draws, seed), level)


def resampled_interval(
    score: Callable[[NDArray[np.int64]], float],
    pictures: Sequence[str],
    *,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return the interval of a score that is not a function of sums, such as AUROC.

    The score is computed again for each draw. `pictures`: the image of each item. `score` is called with the indices of
    the drawn items. If an image is drawn twice, its items occur twice. Draws whose score is NaN are left out. Raises
    DataError in the same cases as `bootstrap_interval`.
    """
    places: dict[str, int] = {}
    owners = np.array([places.setdefault(picture, len(places)) for picture in pictures], dtype=np.int64)
    every = np.arange(len(owners))
    drawn = [
        score(np.repeat(every, times[owners].astype(np.int64)))
        for block in _draws(len(places), draws, seed)
        for times in block
    ]
    known = [one for one in drawn if not np.isnan(one)] or [float("nan")]
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Interval(score(every), float(low), float(high))


def _draws(pictures: int, draws: int, seed: int) -> Iterator[Rows]:
    """Yield how often each image is drawn, as arrays (draws, images) of at most _AT_ONCE entries."""
    if pictures == 0 or draws < 1:
        raise DataError(f"found {pictures} images and {draws} draws, expected at least one of each")
    generator = np.random.default_rng(seed)
    block = max(1, _AT_ONCE // pictures)
    for start in range(0, draws, block):
        times = generator.multinomial(pictures, np.full(pictures, 1 / pictures), size=min(block, draws - start))
        yield times.astype(np.float64)


def _interval(score: Callable[[Callable[[Rows], Rows]], Rows], weights: Iterator[Rows], level: float) -> Interval:
    """Return the interval of a score.

    `score` receives a function that sums rows over all images, or over the images of each draw.
    """
    drawn = np.concatenate([score(one.__matmul__) for one in weights])
    value = float(score(lambda rows: rows.sum(axis=0, keepdims=True))[0])
    if not 0 < level < 1:
        raise DataError(f"level: found {level}, expected a number between 0 and 1, such as 0.95")
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high))
