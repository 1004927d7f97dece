"""Choose one pair (image and text) per image, and drop texts that many images share.

By default, two files are the same image if their SHA-256 are equal, or their difference hashes differ in at most four
bits. A text with more than ten images is dropped with all its pairs. Then the pair with the highest score is chosen for
each image. Ties are broken by the kind of text, then by hashes of text and page.
"""

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT, COMMON, WORSE, HOST = 0, 1, 2, 3  # results for a pair; HOST: more than `host_pairs` pairs are from its host
BAND_MARGIN = 3  # hashes are near only if at least this many of their bands of bits are equal

U64 = NDArray[np.uint64]
Ties = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Pairs:
    """The columns of N pairs of image and text.

    All but `score` and `kind` are 64-bit hashes. Without a scorer `score` is 0.
    """

    picture: U64
    dhash: U64
    text: U64
    page: U64
    host: U64
    score: NDArray[np.float32]
    kind: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.picture)


def choose(pairs: Pairs, common: int | None, near: int | None, host_pairs: int | None) -> NDArray[np.uint8]:
    """Return the verdict on each pair (N,).

    `common`: the largest number of images that a text may have. `near`: the number of bits in which the difference
    hashes of the same image may differ. `host_pairs`: the largest number of pairs of a host. None turns a rule off.
    """
    verdict = np.full(len(pairs), WORSE, np.uint8)
    if not len(pairs):
        return verdict
    cluster = clusters(pairs.picture, pairs.dhash, near)
    if common is not None:
        verdict[_common(pairs.text, cluster, common)] = COMMON
    left = np.flatnonzero(verdict != COMMON)
    best = left[_best(_ties(pairs, left, cluster))] if len(left) else left
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
    """Return the columns by which `np.lexsort` sorts the pairs `of`; the last column is the primary key."""
    return (pairs.picture[of], pairs.page[of], pairs.text[of], pairs.kind[of], -pairs.score[of], cluster[of])


def _common(text: U64, cluster: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    order = np.lexsort((cluster, text))
    texts, pictures = text[order], cluster[order]
    new_text = np.append(True, texts[1:] != texts[:-1])
    new_pair = new_text | np.append(True, pictures[1:] != pictures[:-1])
    group = np.cumsum(new_text) - 1
    counts = np.bincount(group, weights=new_pair).astype(np.int64)
    common = np.zeros(len(text), bool)
    common[order] = counts[group] > most
    return common


def clusters(picture: U64, dhash: U64, near: int | None) -> NDArray[np.int64]:
    """Return the cluster number of each row's image, (N,).

    Images are connected if their hashes are near. A cluster is a connected component.
    """
    _, first, number = np.unique(picture, return_index=True, return_inverse=True)
    if near is None:
        return number.astype(np.int64)
    hashes, of_hash = np.unique(dhash[first], return_inverse=True)
    label = _connected(len(hashes), near_pairs(hashes, near))
    # Images whose difference hashes are equal or near get the same number.
    return np.asarray(label[of_hash][number], np.int64)


def near_pairs(hashes: U64, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of hashes that differ in at most `bits` bits, as two arrays of indices.

    `hashes` has no duplicates. Each hash is cut into `bits + 3` bands of bits. Two near hashes have at least three
    equal bands. So the hashes are sorted by every choice of three bands, and only hashes with three equal bands are
    compared.
    """
    if bits == 0 or len(hashes) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    near: list[NDArray[np.int64]] = []
    edges = np.linspace(0, 64, bits + BAND_MARGIN + 1).astype(int)
    bands = [sum(1 << bit for bit in range(low, high)) for low, high in pairwise(edges.tolist())]
    for some in combinations(bands, BAND_MARGIN):
        key = hashes & np.uint64(sum(some))
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        # Compare each sorted hash with the hashes 1, 2, ... places after it, up to the longest run of equal keys.
        for reach in range(1, len(ordered)):
            same = np.flatnonzero(ordered[reach:] == ordered[:-reach])
            if not len(same):
                break
            a, b = order[same], order[same + reach]
            close = np.bitwise_count(hashes[a] ^ hashes[b]) <= bits
            near.append(np.stack([np.minimum(a[close], b[close]), np.maximum(a[close], b[close])]))
    both = np.unique(np.concatenate(near, axis=1), axis=1) if near else np.zeros((2, 0), np.int64)
    return both[0], both[1]


def _connected(count: int, edges: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return for each of `count` nodes the smallest node number in its connected component.

    `edges`: two arrays of node numbers.
    """
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
