"""Masked queries: every word predicted at once from what decoding sees. Diptych's own objective (decision 5)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch

from diptych.core import IGNORE, QUERIES_BEFORE, Capability, Sample, Vocabulary
from diptych.objectives.per_sample import TargetWords


@dataclass(frozen=True)
class MaskedQueries(TargetWords):
    """One [MASK] per word in the target block: query t attends to the regions, the words before t and itself.

    Decoding does exactly that at step t. Unified VLP's seq2seq objective does it for 15% of the words, with some of the
    words before them masked. One pass gives every word's log-probability, at the cost of one more row per word.
    """

    vocabulary: Vocabulary
    only_matched: bool = False  # no targets in mismatched pairs
    label_smoothing: float = 0.0
    name: str = "masked_queries"

    needs: ClassVar[frozenset[Capability]] = frozenset({"queries"})

    @property
    def unsmoothed(self) -> int:
        return self.vocabulary.pad

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        skipped = self.only_matched and not sample.matched
        labels = torch.full_like(sample.text, IGNORE) if skipped else sample.text
        queries = torch.full_like(sample.text, self.vocabulary.mask)
        return replace(sample, attention=QUERIES_BEFORE, target=queries, target_labels=labels)
