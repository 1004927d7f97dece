"""A question is answered by choosing from a list (VQA)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, Batch, Capability, Model, Sample, StateRequest, States, Vocabulary
from diptych.objectives.words import Scheme, hide_words


@dataclass(frozen=True)
class AnswerQuestion:
    """Cross-entropy against soft targets, `truth["answer_scores"]`: {answer: score}.

    binary   each answer by itself, summed over answers: the "mean times 3129" of Unified VLP and of both codes
    softmax  answers against each other, targets scaled to a sum of 1 (VL-BERT's paper); learns sooner from little
    """

    vocabulary: Vocabulary
    # The authors' fine-tuning hides one word of every question, by accident of max(1, ...), and keeps it because it
    # "works better" (modeling.py:1141). Off, as in the paper.
    mask_one_word: bool = False
    scheme: Scheme = (0.8, 0.1, 0.1)
    form: Literal["binary", "softmax"] = "binary"
    name: str = "answer"

    needs: ClassVar[frozenset[Capability]] = frozenset({"text"})
    heads: ClassVar = frozenset({"answer"})
    changes: ClassVar = "input"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [replace(s, attention=BIDIRECTIONAL, text=self._words(s, rng)) for s in samples]

    def _words(self, sample: Sample, rng: Random) -> Tensor:
        if not self.mask_one_word:
            return sample.text
        return hide_words(sample.text, [[rng.randrange(len(sample.text))]], self.vocabulary, self.scheme, rng)

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(sum("answer_scores" in truth for truth in batch.truths))

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(heads=frozenset({"answer"}))

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        scores: Tensor = model.heads["answer"](states).float()
        if scores.dim() == 3:  # two classifiers (TDEN's code), each asked by itself: their losses are added
            return torch.stack([self._cost(one, batch) for one in scores.unbind(1)]).sum()
        return self._cost(scores, batch)

    def _cost(self, scores: Float[Tensor, "B A"], batch: Batch) -> Tensor:
        wanted, asked = torch.zeros(scores.shape, dtype=scores.dtype), torch.zeros(len(scores), 1, dtype=scores.dtype)
        for row, truth in enumerate(batch.truths):
            if "answer_scores" in truth:
                asked[row] = 1
                for answer, score in truth["answer_scores"].items():
                    wanted[row, int(answer)] = score
        # Written here and sent at once: a GPU would be given a kernel for each number.
        wanted, asked = (told.to(scores.device, non_blocking=True) for told in (wanted, asked))
        if self.form == "binary":
            return F.binary_cross_entropy_with_logits(scores, wanted, weight=asked, reduction="sum")
        shares = wanted / wanted.sum(-1, keepdim=True).clamp(min=torch.finfo(wanted.dtype).tiny)
        return F.cross_entropy(scores, shares, reduction="sum")
