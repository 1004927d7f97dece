"""The last, global step, on narrow columns: one pair a picture, and no text that many pictures share.

One picture is an equal sha256, or a difference hash within four bits. Texts of more than ten pictures are dropped with
all their pairs before the best pair of each picture is chosen. Ties go by score, kind, text, page: a total order, by
hashes of the last two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT, COMMON, WORSE, HOST = 0, 1, 2, 3  # what becomes of a pair
BAND_MARGIN = 3  # bands that agree at the least

U64 = NDArray[np.uint64]
Ties = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Pairs:
    """A row a pair. All but score and kind are 64 bits of a hash; `score` is 0 where nothing scored."""

    picture: U64
    dhash: U64
    text: U64
    page: U64
    host: U64
    score: NDArray[np.float32]
    kind: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.picture)


@dataclass(frozen=True)
class Steps:
    """The parts of `choose` that look at all pairs. Daft has its own, which give the same (`keep_on_daft`).

    near_pairs  hashes (N,), bits -> numbers of those that are within so many bits, twice (E,)
    common      texts and pictures (N,), most -> whether a text is that of more pictures (N,)
    best        columns (N,), the weightiest last, which is the picture -> the first row of each picture
    """

    near_pairs: Callable[[U64, int], tuple[NDArray[np.int64], NDArray[np.int64]]]
    common: Callable[[U64, NDArray[np.int64], int], NDArray[np.bool_]]
    best: Callable[[Ties], NDArray[np.intp]]


def choose(
    pairs: Pairs, common: int | None, near: int | None, host_pairs: int | None, steps: Steps | None = None
) -> NDArray[np.uint8]:
    """What becomes of each pair."""
    steps = steps or PLAIN
    verdict = np.full(len(pairs), WORSE, np.uint8)
    if not len(pairs):
        return verdict
    cluster = clusters(pairs.picture, pairs.dhash, near, steps.near_pairs)
    if common is not None:
        verdict[steps.common(pairs.text, cluster, common)] = COMMON
    left = np.flatnonzero(verdict != COMMON)
    best = left[steps.best(_ties(pairs, left, cluster))] if len(left) else left
    verdict[best] = KEPT
    if host_pairs is not None and len(best):
        order = best[np.lexsort((*_ties(pairs, best, cluster)[:-1], pairs.host[best]))]
        first = np.append(True, pairs.host[order][1:] != pairs.host[order][:-1])
        number = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
        verdict[order[number >= host_pairs]] = HOST
    return verdict


def _best(ties: Ties) -> NDArray[np.intp]:
    order: NDArray[np.intp] = np.lexsort(ties)
    cluster = ties[-1][order]
    first: NDArray[np.intp] = order[np.append(True, cluster[1:] != cluster[:-1])]
    return first


def _ties(pairs: Pairs, of: NDArray[np.intp], cluster: NDArray[np.int64]) -> Ties:
    """For lexsort, the weightiest last."""
    return (pairs.picture[of], pairs.page[of], pairs.text[of], pairs.kind[of], -pairs.score[of], cluster[of])


def _common(text: U64, cluster: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    order = np.lexsort((cluster, text))
    texts, pictures = text[order], cluster[order]
    new_text = np.append(True, texts[1:] != texts[:-1])
    new_pair = new_text | np.append(True, pictures[1:] != pictures[:-1])
    group = np.cumsum(new_text) - 1
    counts = np.bincount(group, weights=new_pair).astype(np.int64)
    found = np.zeros(len(text), bool)
    found[order] = counts[group] > most
    return found


def clusters(
    picture: U64, dhash: U64, near: int | None, pairs_within: Callable[[U64, int], Any] | None = None
) -> NDArray[np.int64]:
    """A number for each picture, the same for what is one picture, near ones of near ones too."""
    _, first, number = np.unique(picture, return_index=True, return_inverse=True)
    if near is None:
        return number.astype(np.int64)
    hashes, of_hash = np.unique(dhash[first], return_inverse=True)
    label = _joined(len(hashes), (pairs_within or near_pairs)(hashes, near))
    # Files of one difference hash are one picture; the number is that of the least hash of all that are near.
    found: NDArray[np.int64] = label[of_hash][number].astype(np.int64)
    return found


def masks(bits: int) -> list[np.uint64]:
    """Of those, two hashes within so many bits agree on one at the least: on some BAND_MARGIN of the bands."""
    edges = np.linspace(0, 64, bits + BAND_MARGIN + 1).astype(int)
    bands = [sum(1 << bit for bit in range(low, high)) for low, high in pairwise(edges.tolist())]
    return [np.uint64(sum(some)) for some in combinations(bands, BAND_MARGIN)]


def near_pairs(hashes: U64, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of hashes, each once, that differ in at most `bits` bits.

    With `bits + 3` bands three are equal in two such hashes at the least, so that only hashes with three equal bands
    are held against each other: sorting finds those.
    """
    if bits == 0 or len(hashes) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    found: list[NDArray[np.int64]] = []
    for mask in masks(bits):
        key = hashes & mask
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        reach = 1
        # Neighbours one apart, two apart, ...: as far as any run of equal keys is long.
        while True:
            same = np.flatnonzero(ordered[reach:] == ordered[:-reach])
            if not len(same):
                break
            a, b = order[same], order[same + reach]
            close = np.bitwise_count(hashes[a] ^ hashes[b]) <= bits
            found.append(np.stack([np.minimum(a[close], b[close]), np.maximum(a[close], b[close])]))
            reach += 1
            if reach >= len(ordered):
                break
    both = np.unique(np.concatenate(found, axis=1), axis=1) if found else np.zeros((2, 0), np.int64)
    return both[0], both[1]


def _joined(count: int, edges: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.int64]:
    """The least number of all that are joined, for each."""
    label = np.arange(count)
    a, b = edges
    while len(a):
        least = np.minimum(label[a], label[b])
        before = label.copy()
        np.minimum.at(label, a, least)
        np.minimum.at(label, b, least)
        label = label[label]
        if np.array_equal(label, before):
            break
    return label


PLAIN = Steps(near_pairs, _common, _best)
