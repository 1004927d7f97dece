"""Choose one pair (image and text) per image, and drop texts that many images share.

By default, a file is a copy of another if the perceptual hashes differ in at most NEAR bits. Images are taken in the
order of their best pairs: one that is near an image taken before is its copy (`clusters`). A text with more than ten
images is dropped with all its pairs. Then the pair with the highest score is chosen for each image and its copies. Ties
are broken by the kind of text, and hashes of text and page. Titles of pages come after all other texts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.vision.fingerprints import U64, Indices, near_pairs

# Results for a pair. HOST: more than `host_pairs` pairs are from its host. BELOW: others have higher scores.
KEPT, COMMON, WORSE, HOST, BELOW = 0, 1, 2, 3, 4

Ties = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Pairs:
    """The columns of N pairs of image and text.

    All but `score` and `kind` are 64-bit hashes; `phash` has 256 bits (N, 4). Without a scorer `score` is 0.
    `kind`: the rank of the kind of text, and of the text among those of its kind; titles of pages come last.
    """

    picture: U64
    phash: U64
    text: U64
    page: U64
    host: U64
    score: NDArray[np.float32]
    kind: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.picture)


def choose(
    pairs: Pairs, common: int | None, near: int | None, host_pairs: int | None, top: float | None = None
) -> NDArray[np.uint8]:
    """Return the verdict on each pair (N,).

    `common`: the largest number of images that a text may have. `near`: the number of bits in which the perceptual
    hashes of copies may differ. `top`: the share of the images whose best pairs are kept. `host_pairs`: the largest
    number of pairs of a host. None turns a rule off.
    """
    verdict = np.full(len(pairs), WORSE, np.uint8)
    if not len(pairs):
        return verdict
    every = np.arange(len(pairs))
    order = np.lexsort(_ties(pairs, every, every)[:-1])
    cluster = np.empty_like(order)
    cluster[order] = clusters(pairs.picture[order], pairs.phash[order], near)
    if common is not None:
        verdict[_common(pairs.text, cluster, common)] = COMMON
    left = np.flatnonzero(verdict != COMMON)
    best = left[_best(_ties(pairs, left, cluster))] if len(left) else left
    verdict[best] = KEPT
    if top is not None:
        best = best[np.lexsort(_ties(pairs, best, cluster)[:-1])]
        best, below = np.split(best, [round(top * len(best))])
        verdict[below] = BELOW
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


def clusters(picture: U64, phash: U64, near: int | None) -> Indices:
    """Return the cluster number of each row's image, (N,). Rows are ordered from the best pair to the worst.

    Images are taken in this order. An image that is near a kept one is its copy; any other image is kept. Copies of
    copies are therefore not joined. A copy belongs to the first kept image that is near it.
    """
    if near is None:
        return np.unique(picture, return_inverse=True)[1]
    _, first, number = np.unique(phash, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return kept_images(phash[first[order]], near)[rank[number]]


def kept_images(hashes: U64, near: int) -> Indices:
    """Return for each hash (N, 4), without duplicates, the index of the kept hash that it is a copy of, or its own."""
    better, worse = near_pairs(hashes, hashes, near)
    better, worse = better[better < worse], worse[better < worse]
    copy = np.zeros(len(hashes), bool)
    a, b = better, worse
    while len(a):
        kept = ~copy
        kept[b] = False  # all others have no near hash before them, except copies
        copy[b[kept[a]]] = True
        left = ~copy[a] & ~copy[b]
        a, b = a[left], b[left]
    of = np.arange(len(hashes))
    copies = ~copy[better] & copy[worse]
    np.minimum.at(of, worse[copies], better[copies])
    return of
