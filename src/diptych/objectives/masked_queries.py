"""Every word is asked for at once, the way decoding asks: our own objective, beside Unified VLP's seq2seq."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from diptych.core import IGNORE, QUERIES_BEFORE, Asked, Batch, Capability, Model, Sample, States, Vocabulary
from diptych.objectives.words import word_losses


@dataclass(frozen=True)
class MaskedQueries:
    """One [MASK] a word in the target block: query t sees the regions, the words before t and itself.

    Decoding asks exactly that at step t, while seq2seq masking asks it of 15% of the words and hides some of the words
    before them. One pass gives every word's log-probability; it costs as many rows again as the text has words.
    """

    vocabulary: Vocabulary
    only_matched: bool = False
    label_smoothing: float = 0.0
    name: str = "masked_queries"

    needs: ClassVar[frozenset[Capability]] = frozenset({"queries"})
    heads: ClassVar = frozenset({"word"})
    changes: ClassVar = "input"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._ask(sample) for sample in samples]

    def _ask(self, sample: Sample) -> Sample:
        quiet = self.only_matched and not sample.matched
        labels = torch.full_like(sample.text, IGNORE) if quiet else sample.text
        queries = torch.full_like(sample.text, self.vocabulary.mask)
        return replace(sample, attention=QUERIES_BEFORE, target=queries, target_labels=labels)

    def count(self, batch: Batch) -> Tensor:
        return self.picked(batch).sum()

    def picked(self, batch: Batch) -> Bool[Tensor, "B U"]:
        assert batch.target_labels is not None
        return batch.target_labels != IGNORE

    def asked(self, batch: Batch) -> Asked:
        assert batch.target_labels is not None
        return Asked(target=batch.target_labels != IGNORE)

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        assert states.target is not None
        assert batch.target_labels is not None
        places = batch.where(self.name, self.picked)
        return word_losses(
            model, states.target, batch.target_labels, self.label_smoothing, self.vocabulary.pad, places
        ).sum()
