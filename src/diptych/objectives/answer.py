"""Visual question answering as classification over a list of answers."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, Batch, Capability, Sample, StateModel, States, Vocabulary
from diptych.objectives.per_sample import PerSample
from diptych.objectives.words import Scheme, hide_words


@dataclass(frozen=True)
class AnswerQuestion(PerSample):
    """Answers: the model scores each answer of its list to a question.

    Cross-entropy with the soft targets `truth["answer_scores"]`, which are {answer: score from 0 to 1}.

    binary   a sigmoid per answer; the losses of all answers are added. This equals "mean times 3129" in the code of
             Unified VLP and VL-BERT
    softmax  a softmax over answers; targets are scaled to a sum of 1 (VL-BERT, section 4.2.2). With little data, it
             learns faster
    """

    vocabulary: Vocabulary
    # Unified VLP's code masks one word of every question. This was an accident, but the authors keep it because it
    # "works better" (modeling.py:1141). Here it is off, as in the paper.
    mask_one_word: bool = False
    scheme: Scheme = (0.8, 0.1, 0.1)
    form: Literal["binary", "softmax"] = "binary"
    name: str = "answer"

    needs: ClassVar[frozenset[Capability]] = frozenset({"text"})
    heads: ClassVar = frozenset({"answer"})
    changes: ClassVar = "input"

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        text = sample.text
        if self.mask_one_word:
            text = hide_words(text, [[rng.randrange(len(text))]], self.vocabulary, self.scheme, rng)
        return replace(sample, attention=BIDIRECTIONAL, text=text)

    def count(self, batch: Batch) -> Tensor:
        """Number of questions with known answers."""
        return torch.tensor(sum("answer_scores" in truth for truth in batch.truths))

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        scores: Tensor = model.heads["answer"](states).float()
        if scores.dim() == 3:  # TDEN's code has two classifiers, whose losses are added
            return torch.stack([self._cost(one, batch) for one in scores.unbind(1)]).sum()
        return self._cost(scores, batch)

    def _cost(self, scores: Float[Tensor, "B A"], batch: Batch) -> Tensor:
        wanted, known = torch.zeros(scores.shape, dtype=scores.dtype), torch.zeros(len(scores), 1, dtype=scores.dtype)
        for row, truth in enumerate(batch.truths):
            if "answer_scores" in truth:
                known[row] = 1
                for answer, score in truth["answer_scores"].items():
                    wanted[row, int(answer)] = score
        # The tensor is filled on the CPU and copied once, because on a GPU each assignment would launch a kernel.
        wanted, known = (values.to(scores.device, non_blocking=True) for values in (wanted, known))
        if self.form == "binary":
            return F.binary_cross_entropy_with_logits(scores, wanted, weight=known, reduction="sum")
        shares = wanted / wanted.sum(-1, keepdim=True).clamp(min=torch.finfo(wanted.dtype).tiny)
        return F.cross_entropy(scores, shares, reduction="sum")
