"""Rewards of self-critical training: the CIDEr-D of sampled captions against human captions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from diptych.core import Batch, Record
from diptych.data.store.tokens import Tokens
from diptych.metrics.cider import CiderD, DocumentFrequencies
from diptych.metrics.tokenise import tokens_of
from diptych.objectives.self_critical import Caption
from diptych.runtime.files import sha256_of_json

FREQUENCIES = "frequencies.json"  # file in the run's folder with the document frequencies of n-grams
END = "."  # marks the end of a caption; `tokens_of` never returns a full stop


def human_captions(record: Record) -> tuple[str, ...]:
    """Return a record's human captions that have at least one letter or digit."""
    by_model = {caption.text for caption in record.generated}
    return tuple(c for c in record.captions if c not in by_model and any(letter.isalnum() for letter in c))


@dataclass(frozen=True)
class CorpusCider:
    """CIDEr-D against all reference captions of an image. Document frequencies are counted over all training images.

    The frequencies are cached in the run's folder.
    """

    tokens: Tokens
    references: Mapping[str, Sequence[str]]  # {image: reference captions} of the training set
    counts_end: bool
    cache: Path

    def __call__(self, batch: Batch, captions: Sequence[Sequence[Caption]]) -> Float[Tensor, "B K"]:
        # Scores by image and caption; a caption is often sampled twice for an image.
        scores: dict[tuple[str, tuple[int, ...]], float] = {}
        rows = []
        for picture, of_picture in zip(batch.pictures, captions, strict=True):
            for caption in of_picture:
                place = picture, tuple(caption)
                if place not in scores:
                    scores[place] = self.scorer.score(picture, self._words(caption))
            rows.append([scores[picture, tuple(caption)] for caption in of_picture])
        return torch.tensor(rows)

    def spell(self, caption: Caption) -> str:
        return self.tokens.decode(caption)

    @cached_property
    def scorer(self) -> CiderD:
        references = {
            key: [self._ended(tokens_of(caption)) for caption in of_key] for key, of_key in self.references.items()
        }
        name = sha256_of_json(references)
        if self.cache.is_file() and (known := DocumentFrequencies.load(self.cache)).references == name:
            return CiderD(known, references)
        frequencies = DocumentFrequencies.of(references.values(), name)
        frequencies.save(self.cache)
        return CiderD(frequencies, references)

    def _words(self, caption: Caption) -> list[str]:
        words = list(tokens_of(self.spell(caption)))
        return self._ended(words) if caption[-1] == self.tokens.vocabulary.sep else words

    def _ended(self, words: Sequence[str]) -> list[str]:
        return [*words, END] if self.counts_end else list(words)


@dataclass(frozen=True)
class BatchCider:
    """CIDEr-D as in Unified VLP's code (scst_utils.py). Each sample has one reference, its word pieces and [SEP].

    Document frequencies are counted over the batch. Each image counts twice: for its sampled and its greedy caption.
    """

    tokens: Tokens

    def __call__(self, batch: Batch, captions: Sequence[Sequence[Caption]]) -> Float[Tensor, "B K"]:
        truths = [
            [str(piece) for piece in row[present].tolist()]
            for row, present in zip(batch.text.cpu(), batch.text_present.cpu(), strict=True)
        ]
        once = DocumentFrequencies.of([truth] for truth in truths)
        twice = DocumentFrequencies(2 * once.pictures, Counter({gram: 2 * n for gram, n in once.counts.items()}))
        scorer = CiderD(twice, {str(row): [truth] for row, truth in enumerate(truths)})
        rows = [
            [scorer.score(str(row), [str(piece) for piece in caption]) for caption in of_row]
            for row, of_row in enumerate(captions)
        ]
        return torch.tensor(rows)

    def spell(self, caption: Caption) -> str:
        return self.tokens.decode(caption)
