"""Masked queries: predict all words at once, each from the same input as in decoding.

An objective of Diptych (docs/decisions/0005).
"""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch

from diptych.core import IGNORE, QUERIES_BEFORE, Capability, Sample, Vocabulary
from diptych.objectives.per_sample import TargetWords


@dataclass(frozen=True)
class MaskedQueries(TargetWords):
    """Next words: each word of a caption is predicted from the image and the words before it.

    Predict all words at once with one [MASK] query per word. Query t attends to the regions and the words before t.

    This is the input of decoding at step t. Unified VLP's seq2seq objective predicts only 15% of the words, and some of
    the words before them are masked. Here one pass gives the log-probability of every word. The cost is one additional
    position per word.
    """

    vocabulary: Vocabulary
    only_matched: bool = False  # True: mismatched pairs have no targets
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
