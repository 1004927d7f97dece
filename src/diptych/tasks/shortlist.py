"""A cheap first ranking of a large gallery, which chooses the pairs that a model scores.

Closed-form ridge regression predicts the words of an image's captions from its regions. Predicted words are compared
with the words of each caption. It is fitted to training images and does not depend on the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.core import Record
from diptych.data.store.tokens import Tokens
from diptych.runtime.errors import DataError
from diptych.tasks.gallery import RetrievalGallery

Matrix = NDArray[np.float64]
MOST = 5000  # training images: a gigabyte at most with the papers' features
PENALTY = 0.1  # ridge penalty, times the number of images; inputs have a standard deviation of 1


@dataclass(frozen=True)
class Shortlister:
    """A fitted ridge regression from regions to words."""

    tokens: Tokens
    columns: dict[int, int]  # token id -> column
    rarity: NDArray[np.float64]  # inverse document frequency of each word, in nats
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    weights: Matrix  # from features and a bias to words

    @classmethod
    def of(cls, records: Iterable[Record], tokens: Tokens) -> Shortlister:
        """Fit to records with regions and captions. Raises DataError if there are none."""
        inputs, sentences = [], []
        for record in records:
            if record.regions is not None and len(record.regions) and record.captions:
                inputs.append(_features(record))
                sentences.append({word for caption in record.captions for word in tokens.encode(caption)})
            if len(inputs) == MOST:
                break
        if not inputs:
            raise DataError("a shortlist needs training images with captions: there are none; leave out --shortlist")
        counts = Counter(word for words in sentences for word in words)
        known = sorted(word for word, count in counts.items() if 1 < count < len(sentences)) or sorted(counts)
        columns = {word: place for place, word in enumerate(known)}
        rarity = np.log((1 + len(sentences)) / np.array([counts[word] for word in known]))
        features, words = np.stack(inputs), np.stack([_bag(text, columns, rarity) for text in sentences])
        mean, deviation = features.mean(0), features.std(0) + 1e-6
        scaled = _standard(features, mean, deviation)
        square = scaled.T @ scaled + PENALTY * len(scaled) * np.eye(scaled.shape[1])
        weights = np.linalg.solve(square, scaled.T @ words).astype(np.float64)
        return cls(tokens, columns, rarity, mean, deviation, weights)

    def of_pictures(self, records: Iterable[Record]) -> Matrix:
        """Return unit vectors (images, words). Images without regions get the mean features."""
        rows = []
        for record in records:
            empty = record.regions is None or not len(record.regions)
            rows.append(self.mean if empty else _features(record))
        return _unit(_standard(np.stack(rows), self.mean, self.deviation) @ self.weights)

    def of_captions(self, captions: Sequence[str]) -> Matrix:
        """Return vectors (captions, words) of length 1, or 0 if no word is known."""
        bags = [_bag(set(self.tokens.encode(text)), self.columns, self.rarity) for text in captions]
        return _unit(np.stack(bags))

    def choose(self, gallery: RetrievalGallery, most: int) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """Return for each image the `most` best captions, and for each caption the `most` best images, in no order."""
        pictures = self.of_pictures(map(gallery.record, range(len(gallery.keys))))
        captions = self.of_captions([caption.text for caption in gallery.captions])
        return shortlist(pictures, captions, most)


def _features(record: Record) -> NDArray[np.float64]:
    """Return the mean features, mean and maximum class probabilities over regions, and the whole image's features."""
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
    """Return for each image the `most` captions with the greatest dot product, and for each caption the images."""
    return [_top(captions @ row, most) for row in pictures], [_top(pictures @ row, most) for row in captions]


def _top(scores: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    if most >= len(scores):
        return np.arange(len(scores))
    return np.argpartition(-scores, most)[:most].astype(np.int64)
