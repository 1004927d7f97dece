"""A question is answered by choosing from a list (VQA)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, Batch, Model, Sample, States, Vocabulary
from diptych.objectives.words import Scheme, hide_words


@dataclass(frozen=True)
class AnswerQuestion:
    """Binary cross-entropy against soft targets, `truth["answer_scores"]`: {answer: score}.

    Summed over answers, averaged over questions: the code's "mean times 3129".
    """

    vocabulary: Vocabulary
    # The authors' fine-tuning hides one word of every question, by accident of max(1, ...), and keeps it because it
    # "works better" (modeling.py:1141). Off, as in the paper.
    mask_one_word: bool = False
    scheme: Scheme = (0.8, 0.1, 0.1)
    name: str = "answer"

    needs: ClassVar = frozenset({"text"})
    heads: ClassVar = frozenset({"answer"})
    changes: ClassVar = "input"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [replace(s, attention=BIDIRECTIONAL, text=self._words(s, rng)) for s in samples]

    def _words(self, sample: Sample, rng: Random) -> Tensor:
        if not self.mask_one_word:
            return sample.text
        return hide_words(sample.text, [rng.randrange(len(sample.text))], self.vocabulary, self.scheme, rng)

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(sum("answer_scores" in truth for truth in batch.truths))

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        scores: Tensor = model.heads["answer"](states).float()
        wanted, asked = torch.zeros_like(scores), scores.new_zeros(len(scores), 1)
        for row, truth in enumerate(batch.truths):
            if "answer_scores" in truth:
                asked[row] = 1
                for answer, score in truth["answer_scores"].items():
                    wanted[row, int(answer)] = score
        return F.binary_cross_entropy_with_logits(scores, wanted, weight=asked, reduction="sum")
