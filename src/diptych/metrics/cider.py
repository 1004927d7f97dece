"""CIDEr (Vedantam et al., CVPR 2015, arXiv:1411.5726) as pycocoevalcap computes it: 0 to 10, papers print it times 100.

pycocoevalcap's CIDEr has the clipping and the length penalty of CIDEr-D (section 5 of the paper). It differs from the
paper's CIDEr-D only in the document frequencies, which are those of the evaluated references. SCST training
(arXiv:1612.00563) uses those of the whole training corpus. `CiderD` computes both, given the frequencies.

    CIDEr-D(c, references) = 10/4  sum over n = 1..4  mean over references r  exp(-(|c| - |r|)^2 / (2 * 6^2))
                             * sum over n-grams g of min(c_g, r_g) r_g / (|c_n| |r_n|)

where c_g is the count of g in c times log(images / images with g in a reference).
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.tokenise import ORDERS, Ngram, Tokens, ngrams
from diptych.runtime.errors import DataError
from diptych.runtime.files import text_of, write_atomically

_SIGMA = 6.0


def _ngrams(tokens: Tokens) -> Iterator[Ngram]:
    return chain.from_iterable(ngrams(tokens, order) for order in ORDERS)


@dataclass(frozen=True)
class DocumentFrequencies:
    """Document frequencies: for each n-gram, the number of images that have it in a reference."""

    pictures: int
    counts: Mapping[Ngram, int]
    references: str = ""  # name of the data set whose references were counted

    @classmethod
    def of(cls, references: Iterable[Sequence[Tokens]], name: str = "") -> "DocumentFrequencies":
        """Count the n-grams of a corpus. Each item has the references of an image."""
        counts: Counter[Ngram] = Counter()
        images = 0
        for captions in references:
            counts.update(set(chain.from_iterable(map(_ngrams, captions))))
            images += 1
        return cls(images, counts, name)

    def save(self, path: Path) -> None:
        """Write JSON: {"pictures": 2, "counts": {"a dog": 1}}."""
        counts = {" ".join(gram): count for gram, count in sorted(self.counts.items())}
        named = {"references": self.references} if self.references else {}
        saved = json.dumps({"pictures": self.pictures, **named, "counts": counts}, ensure_ascii=False)
        write_atomically(path, saved.encode())

    @classmethod
    def load(cls, path: Path) -> "DocumentFrequencies":
        """Read a file written by `save`. Raises DataError."""
        wanted = f'{path}: expected {{"pictures": 2, "counts": {{"a dog": 1}}}} as DocumentFrequencies.save writes'
        try:
            saved = json.loads(text_of(path))
            pictures, counts, name = saved["pictures"], saved["counts"], str(saved.get("references", ""))
            wrong = [one for one in counts.values() if type(one) is not int or not 0 < one <= pictures]
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(f"{wanted}; {type(error).__name__}: {error}") from error
        if type(pictures) is not int or wrong:
            raise DataError(f"{wanted}; found counts that are not whole numbers from 1 to the number of images")
        return cls(pictures, {tuple(gram.split(" ")): count for gram, count in counts.items()}, name)


@dataclass(frozen=True)
class _Weighed:
    """A caption as the TF-IDF weights of its n-grams, with their norm for each n, and the caption's length."""

    weights: Mapping[Ngram, float]
    norms: Sequence[float]
    length: int  # number of bigrams: pycocoevalcap's measure of length


class CiderD:
    """Scores captions of images with known references. The weights of an image's references are cached."""

    def __init__(self, frequencies: DocumentFrequencies, references: Mapping[str, Sequence[Tokens]]) -> None:
        self._references = references
        whole = math.log(max(frequencies.pictures, 1))
        by_count = {count: whole - math.log(count) for count in set(frequencies.counts.values())}
        self._rarity = {gram: by_count[count] for gram, count in frequencies.counts.items()}
        self._unseen = whole  # n-grams in no reference weigh as much as n-grams of one image
        self._weighed: dict[str, list[_Weighed]] = {}

    def score(self, key: str, caption: Tokens) -> float:
        """Return the score (0 to 10) of a caption of the image `key`; 0 for a caption without words.

        Raises DataError for an image without references.
        """
        references = self._weighed.get(key)
        if references is None:
            if not self._references.get(key):
                raise DataError("this image has no reference caption; leave it out, or add a caption", key=key)
            references = self._weighed[key] = [self._weigh(reference) for reference in self._references[key]]
        weighed = self._weigh(caption)
        return 10 * sum(_similarity(weighed, reference) for reference in references) / len(references)

    def scores(self, keys: Iterable[str], captions: Iterable[Tokens]) -> NDArray[np.float64]:
        """Return the scores (N,) of N captions. A key may occur several times, for several captions of an image."""
        return np.array([self.score(key, caption) for key, caption in zip(keys, captions, strict=True)])

    def _weigh(self, caption: Tokens) -> _Weighed:
        rarity, unseen = self._rarity, self._unseen
        weights = {gram: count * rarity.get(gram, unseen) for gram, count in Counter(_ngrams(caption)).items()}
        squares = [0.0] * len(ORDERS)
        for gram, weight in weights.items():
            squares[len(gram) - 1] += weight * weight
        return _Weighed(weights, [math.sqrt(square) for square in squares], max(0, len(caption) - 1))


def _similarity(caption: _Weighed, reference: _Weighed) -> float:
    """Return the clipped cosine similarity, averaged over n = 1 to 4, times the length penalty: 0 to 1."""
    products = [0.0] * len(ORDERS)
    ours, theirs = caption.weights, reference.weights
    for gram, weight in ours.items():  # in an order that does not depend on hashes, which differ between processes
        if gram in theirs:
            products[len(gram) - 1] += min(weight, theirs[gram]) * theirs[gram]
    # A norm is 0 if there are no n-grams, or if each n-gram is in every image. The dot product is then 0 too.
    pairs = zip(products, caption.norms, reference.norms, strict=True)
    cosine = sum(product / (mine * their) for product, mine, their in pairs if product)
    return cosine / len(ORDERS) * math.exp(-((caption.length - reference.length) ** 2) / (2 * _SIGMA**2))


def cider_scores(predictions: Mapping[str, Tokens], references: Mapping[str, Sequence[Tokens]]) -> dict[str, float]:
    """Return CIDEr of each predicted caption, with document frequencies from the references.

    The score of the corpus is the mean. Raises DataError for an image without references.
    """
    scorer = CiderD(DocumentFrequencies.of(references[key] for key in predictions), references)
    return {key: scorer.score(key, caption) for key, caption in predictions.items()}
