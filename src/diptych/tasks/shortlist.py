"""A cheap first ranking of a large gallery. Only the best pairs of this ranking are scored by a model.

Ridge regression predicts the caption words of an image from its regions. The score of an image and a caption is the dot
product of predicted words and the caption's words. The regression is fitted to training images and does not depend on
the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from diptych.core import Record
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import DataError
from diptych.tasks.gallery import RetrievalGallery

Matrix = NDArray[np.float64]
MOST = 5000  # maximum number of training images for the regression; with the papers' features, 5,000 need 1 GB
# The ridge penalty is this number times the number of training images; inputs have a standard deviation of 1.
PENALTY = 0.1


@dataclass(frozen=True)
class Shortlister:
    """A fitted ridge regression from region features to caption words."""

    tokens: Tokens
    columns: dict[int, int]  # {token id: number of the word's column}
    rarity: NDArray[np.float64]  # inverse document frequency of each word, in nats
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    weights: Matrix  # (features + 1, words); the last row has the biases

    @classmethod
    def of(cls, records: Iterable[Record], tokens: Tokens) -> Shortlister:
        """Fit to the records that have regions and captions. Raises DataError if no record has both."""
        usable = (one for one in records if one.regions is not None and len(one.regions) and one.captions)
        chosen = [(_features(record), record.captions) for record in islice(usable, MOST)]
        if not chosen:
            raise DataError("a shortlist needs training images with captions, found none; leave out --shortlist")
        sentences = [{word for text in captions for word in tokens.encode(text)} for _, captions in chosen]
        counts = Counter(word for words in sentences for word in words)
        known = sorted(word for word, count in counts.items() if 1 < count < len(sentences)) or sorted(counts)
        columns = {word: place for place, word in enumerate(known)}
        rarity = np.log((1 + len(sentences)) / np.array([counts[word] for word in known]))
        features, words = (
            np.stack([one for one, _ in chosen]),
            np.stack([_bag(text, columns, rarity) for text in sentences]),
        )
        mean, deviation = features.mean(0), features.std(0) + 1e-6
        scaled = _standard(features, mean, deviation)
        square = scaled.T @ scaled + PENALTY * len(scaled) * np.eye(scaled.shape[1])
        weights = np.linalg.solve(square, scaled.T @ words).astype(np.float64)
        return cls(tokens, columns, rarity, mean, deviation, weights)

    def of_pictures(self, records: Iterable[Record]) -> Matrix:
        """Return the predicted words of each image as unit vectors (images, words).

        An image without regions gets the mean features.
        """
        rows = []
        for record in records:
            empty = record.regions is None or not len(record.regions)
            rows.append(self.mean if empty else _features(record))
        return _unit(_standard(np.stack(rows), self.mean, self.deviation) @ self.weights)

    def of_captions(self, captions: Sequence[str]) -> Matrix:
        """Return the words of each caption as unit vectors (captions, words).

        A caption without known words is a zero vector.
        """
        bags = [_bag(set(self.tokens.encode(text)), self.columns, self.rarity) for text in captions]
        return _unit(np.stack(bags))

    def choose(self, gallery: RetrievalGallery, most: int) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """Return the best captions for each image and the best images for each caption, at most `most`, not sorted."""
        pictures = self.of_pictures(map(gallery.record, range(len(gallery.keys))))
        captions = self.of_captions([caption.text for caption in gallery.captions])
        return shortlist(pictures, captions, most)


def _features(record: Record) -> NDArray[np.float64]:
    """Concatenate mean and maximum class probabilities, mean features, and the whole image's features."""
    regions = record.regions
    assert regions is not None
    parts = [] if regions.classes is None else [regions.classes.mean(0), regions.classes.amax(0)]
    parts += [] if regions.features is None else [regions.features.mean(0)]
    parts += [] if regions.whole is None else [regions.whole]
    return np.concatenate([part.double().numpy() for part in parts])


def _bag(words: set[int], columns: dict[int, int], rarity: NDArray[np.float64]) -> NDArray[np.float64]:
    bag = np.zeros(len(columns))
    for word in words & columns.keys():
        bag[columns[word]] = rarity[columns[word]]
    return bag


def _standard(features: Matrix, mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> Matrix:
    return np.hstack([(features - mean) / deviation, np.ones((len(features), 1))])


def _unit(rows: Matrix) -> Matrix:
    lengths: Matrix = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Matrix = rows / np.where(lengths > 0, lengths, 1)
    return unit


def shortlist(pictures: Matrix, captions: Matrix, most: int) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return for each image the indices of the captions with the largest dot products, and the reverse.

    Each array has at most `most` indices, not sorted.
    """
    return [_top(captions @ row, most) for row in pictures], [_top(pictures @ row, most) for row in captions]


def _top(scores: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    if most >= len(scores):
        return np.arange(len(scores))
    return np.argpartition(-scores, most)[:most].astype(np.int64)
