"""CIDEr (Vedantam et al., CVPR 2015, arXiv:1411.5726) as pycocoevalcap computes it: 0 to 10, papers print it times 100.

What pycocoevalcap calls CIDEr has the clipping and the length penalty of CIDEr-D (section 5 of the paper); it differs
from the paper's CIDEr-D only in where document frequencies come from: the references under evaluation. In training by
reward (SCST, arXiv:1612.00563) they come from the whole training corpus. Both are `CiderD` with other frequencies.

    CIDEr-D(c, references) = 10/4  sum over n = 1..4  mean over references r  exp(-(|c| - |r|)^2 / (2 * 6^2))
                             * sum over n-grams g of min(c_g, r_g) r_g / (|c_n| |r_n|)

where c_g is the count of g times log(pictures / pictures with g in a reference).
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.errors import DataError
from diptych.metrics.tokenise import ORDERS, Ngram, Tokens, ngrams

_SIGMA = 6.0


def _counts(tokens: Tokens) -> Counter[Ngram]:
    return Counter(gram for order in ORDERS for gram in ngrams(tokens, order))


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many of the corpus' pictures an n-gram is in some reference."""

    pictures: int
    counts: Mapping[Ngram, int]

    @classmethod
    def of(cls, references: Iterable[Sequence[Tokens]]) -> "DocumentFrequencies":
        counts: Counter[Ngram] = Counter()
        pictures = 0
        for captions in references:
            counts.update({gram for caption in captions for gram in _counts(caption)})
            pictures += 1
        return cls(pictures, counts)

    def save(self, path: Path) -> None:
        """JSON: {"pictures": 2, "counts": {"a dog": 1}}."""
        counts = {" ".join(gram): count for gram, count in sorted(self.counts.items())}
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps({"pictures": self.pictures, "counts": counts}, ensure_ascii=False), encoding="utf-8")
        part.replace(path)  # whole or not at all

    @classmethod
    def load(cls, path: Path) -> "DocumentFrequencies":
        wanted = f'{path}: wanted {{"pictures": 2, "counts": {{"a dog": 1}}}} as DocumentFrequencies.save writes'
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            pictures, counts = saved["pictures"], saved["counts"]
            sane = type(pictures) is int and all(
                type(count) is int and 0 < count <= pictures for count in counts.values()
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(f"{wanted}; {type(error).__name__}: {error}") from error
        if not sane:
            raise DataError(f"{wanted}; found counts that are not whole numbers from 1 to the number of pictures")
        return cls(pictures, {tuple(gram.split(" ")): count for gram, count in counts.items()})


@dataclass(frozen=True)
class _References:
    """One picture's references, turned round: for each n-gram the references that have it."""

    found: Mapping[Ngram, Sequence[tuple[int, float, float]]]  # (reference, weight, weight / norm of its order)
    lengths: Sequence[int]


class CiderD:
    """Scores captions of known pictures. References are weighed once, at a picture's first score, and kept."""

    def __init__(self, frequencies: DocumentFrequencies, references: Mapping[str, Sequence[Tokens]]) -> None:
        self._references = references
        whole = math.log(max(frequencies.pictures, 1))
        self._rarity = {gram: whole - math.log(count) for gram, count in frequencies.counts.items()}
        self._unseen = whole  # an n-gram of no reference counts as one seen in a single picture
        self._weighed: dict[str, _References] = {}

    def score(self, key: str, caption: Tokens) -> float:
        """One caption of the picture `key`, from 0 to 10. A caption without words scores 0."""
        weighed = self._weighed.get(key) or self._weigh(key)
        if not caption:
            return 0.0
        squares = [0.0] * len(ORDERS)
        products = [[0.0] * len(weighed.lengths) for _ in ORDERS]
        rarity, unseen, found = self._rarity, self._unseen, weighed.found
        for gram, count in _counts(caption).items():
            order = len(gram) - 1
            weight = count * rarity.get(gram, unseen)
            squares[order] += weight * weight
            row = products[order]
            for reference, theirs, normed in found.get(gram, ()):
                row[reference] += min(weight, theirs) * normed
        length = _bigrams(caption)
        penalties = [math.exp(-((length - other) ** 2) / (2 * _SIGMA**2)) for other in weighed.lengths]
        cosines = 0.0
        for square, row in zip(squares, products, strict=True):
            if square:
                cosines += sum(map(mul, row, penalties)) / math.sqrt(square)
        return 10 * cosines / len(ORDERS) / len(penalties)

    def scores(self, keys: Iterable[str], captions: Iterable[Tokens]) -> NDArray[np.float64]:
        """Shape (N,), one score a pair; a key may come again, as it does with several samples a picture."""
        return np.array([self.score(key, caption) for key, caption in zip(keys, captions, strict=True)])

    def _weigh(self, key: str) -> _References:
        captions = self._references.get(key)
        if not captions:
            raise DataError("no reference captions to score against; leave the picture out or give it one", key=key)
        found: dict[Ngram, list[tuple[int, float, float]]] = {}
        for reference, caption in enumerate(captions):
            weights = {gram: count * self._rarity.get(gram, self._unseen) for gram, count in _counts(caption).items()}
            norms = [math.sqrt(sum(w * w for gram, w in weights.items() if len(gram) == order)) for order in ORDERS]
            for gram, weight in weights.items():
                if norm := norms[len(gram) - 1]:
                    found.setdefault(gram, []).append((reference, weight, weight / norm))
        weighed = _References(found, [_bigrams(caption) for caption in captions])
        self._weighed[key] = weighed
        return weighed


def _bigrams(caption: Tokens) -> int:
    """pycocoevalcap's length of a caption is its number of bigrams, which shows only where one has no words."""
    return max(0, len(caption) - 1)


def cider(predictions: Mapping[str, Tokens], references: Mapping[str, Sequence[Tokens]]) -> dict[str, float]:
    """CIDEr of each picture predicted; the corpus score is the mean. Document frequencies are of these references."""
    scorer = CiderD(DocumentFrequencies.of(references[key] for key in predictions), references)
    return {key: scorer.score(key, caption) for key, caption in predictions.items()}
