"""A cheap first ranking of a large gallery: which pairs are worth a model's time.

Ridge regression from what the detector saw to the words of captions, in closed form: the likeliest words of a picture,
held against the words of a caption. It is learnt on training pictures alone and knows nothing of the model.
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
MOST = 5000  # pictures that it learns from: a gigabyte at most with the papers' features
PENALTY = 0.1  # of ridge, times the number of pictures; inputs have a deviation of 1


@dataclass(frozen=True)
class Shortlister:
    tokens: Tokens
    columns: dict[int, int]  # word -> its place
    rarity: NDArray[np.float64]  # of each word: log of pictures over pictures that have it
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    weights: Matrix  # from a picture, with 1 at the end, to words

    @classmethod
    def of(cls, records: Iterable[Record], tokens: Tokens) -> Shortlister:
        """Learnt from records with regions and captions."""
        seen, sentences = [], []
        for record in records:
            if record.regions is not None and len(record.regions) and record.captions:
                seen.append(_features(record))
                sentences.append({word for caption in record.captions for word in tokens.encode(caption)})
            if len(seen) == MOST:
                break
        if not seen:
            raise DataError(
                "a shortlist is learnt from training pictures with captions, and there are none; leave out --shortlist"
            )
        counts = Counter(word for words in sentences for word in words)
        known = sorted(word for word, count in counts.items() if 1 < count < len(sentences)) or sorted(counts)
        columns = {word: place for place, word in enumerate(known)}
        rarity = np.log((1 + len(sentences)) / np.array([counts[word] for word in known]))
        features, words = np.stack(seen), np.stack([_bag(text, columns, rarity) for text in sentences])
        mean, deviation = features.mean(0), features.std(0) + 1e-6
        inputs = _standard(features, mean, deviation)
        square = inputs.T @ inputs + PENALTY * len(inputs) * np.eye(inputs.shape[1])
        weights = np.linalg.solve(square, inputs.T @ words).astype(np.float64)
        return cls(tokens, columns, rarity, mean, deviation, weights)

    def of_pictures(self, records: Iterable[Record]) -> Matrix:
        """(pictures, words), each of length 1. Pictures without regions get nothing."""
        rows = []
        for record in records:
            empty = record.regions is None or not len(record.regions)
            rows.append(self.mean if empty else _features(record))
        return _unit(_standard(np.stack(rows), self.mean, self.deviation) @ self.weights)

    def of_captions(self, captions: Sequence[str]) -> Matrix:
        """(captions, words), each of length 1 or, where no word is known, 0."""
        bags = [_bag(set(self.tokens.encode(text)), self.columns, self.rarity) for text in captions]
        return _unit(np.stack(bags))

    def choose(self, gallery: RetrievalGallery, most: int) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """For each picture the `most` best captions, for each caption the best pictures; their order says nothing."""
        pictures = self.of_pictures(gallery.records[row] for row in range(len(gallery.keys)))
        captions = self.of_captions([caption.text for caption in gallery.captions])
        return [top(captions @ row, most) for row in pictures], [top(pictures @ row, most) for row in captions]


def _features(record: Record) -> NDArray[np.float64]:
    """Means over regions of their features and classes, and the greatest of the classes; the whole picture's own."""
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


def top(scores: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """The places of the best, in no order."""
    if most >= len(scores):
        return np.arange(len(scores))
    return np.argpartition(-scores, most)[:most].astype(np.int64)
