"""How sure a score is: percentile bootstrap (Efron, 1979; for paired comparison Koehn, EMNLP 2004).

The unit that is drawn is the picture, since questions or captions of one picture stand or fall together. A score is
any function of a sum of rows, one row a picture: the mean of CIDEr from (score, 1), BLEU from its counts. A score of a
picture is taken as given: CIDEr's document frequencies are those of the whole set in every draw.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.runtime.errors import DataError

Rows = NDArray[np.float64]
Statistic = Callable[[Rows], Rows]  # (draws, K) sums -> (draws,) scores

_AT_ONCE = 4_000_000  # draws times pictures held in memory together (32 MB)


@dataclass(frozen=True)
class Interval:
    """`below_zero` is the share of draws at or below 0: of a difference, how often the first was no better."""

    value: float
    low: float
    high: float
    below_zero: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def ratio(sums: Rows) -> Rows:
    """The mean, of rows (score, 1) or (sum of scores, number of scores)."""
    scores: Rows = sums[..., 0] / sums[..., 1]
    return scores


def rows_by_picture(scores: ArrayLike, pictures: Sequence[str] | None = None) -> Rows:
    """(sum, number) of the scores of each picture, in order of first sight; without `pictures` each is its own."""
    values = np.asarray(scores, dtype=np.float64)
    if pictures is None:
        return np.stack([values, np.ones_like(values)], axis=1)
    if len(pictures) != len(values):
        raise DataError(f"{len(values)} scores of {len(pictures)} pictures; wanted a picture for each score")
    places: dict[str, int] = {}
    owners = np.array([places.setdefault(picture, len(places)) for picture in pictures], dtype=np.int64)
    return np.stack([np.bincount(owners, values), np.bincount(owners)], axis=1).astype(np.float64)


def bootstrap_interval(
    rows: Rows, statistic: Statistic = ratio, *, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Interval of one system's score. `rows` (pictures, K); equal seeds give equal intervals."""
    drawn = [statistic(weights @ rows) for weights in _draws(len(rows), draws, seed)]
    return _interval(_whole(rows, statistic), np.concatenate(drawn), level)


def paired_interval(
    first: Rows, second: Rows, statistic: Statistic = ratio, *, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Interval of first minus second, both scored on the same pictures in the same order: each draw takes both."""
    if first.shape != second.shape:
        raise DataError(
            f"rows of shape {first.shape} beside {second.shape}; a paired comparison needs the same pictures"
        )
    drawn = [statistic(weights @ first) - statistic(weights @ second) for weights in _draws(len(first), draws, seed)]
    return _interval(_whole(first, statistic) - _whole(second, statistic), np.concatenate(drawn), level)


def _whole(rows: Rows, statistic: Statistic) -> float:
    return float(statistic(rows.sum(axis=0, keepdims=True))[0])


def _draws(pictures: int, draws: int, seed: int) -> Iterator[Rows]:
    """How often each picture is drawn: blocks of shape (some draws, pictures)."""
    if pictures == 0 or draws < 1:
        raise DataError(f"nothing to draw: {pictures} pictures, {draws} draws")
    generator = np.random.default_rng(seed)
    block = max(1, _AT_ONCE // pictures)
    for start in range(0, draws, block):
        times = generator.multinomial(pictures, np.full(pictures, 1 / pictures), size=min(block, draws - start))
        yield times.astype(np.float64)


def _interval(value: float, drawn: Rows, level: float) -> Interval:
    if not 0 < level < 1:
        raise DataError(f"level {level}: wanted a share between 0 and 1, such as 0.95")
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), float(np.mean(drawn <= 0)))
