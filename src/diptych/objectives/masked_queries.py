"""Every word is asked for at once, the way decoding asks: our own objective, beside Unified VLP's seq2seq."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch

from diptych.core import IGNORE, QUERIES_BEFORE, Capability, Sample, Vocabulary
from diptych.objectives.target_words import TargetWords


@dataclass(frozen=True)
class MaskedQueries(TargetWords):
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

    @property
    def spared(self) -> int:
        return self.vocabulary.pad

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._ask(sample) for sample in samples]

    def _ask(self, sample: Sample) -> Sample:
        quiet = self.only_matched and not sample.matched
        labels = torch.full_like(sample.text, IGNORE) if quiet else sample.text
        queries = torch.full_like(sample.text, self.vocabulary.mask)
        return replace(sample, attention=QUERIES_BEFORE, target=queries, target_labels=labels)
