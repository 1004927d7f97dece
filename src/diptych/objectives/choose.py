"""Multiple choice: decide which of several texts about an image is right, such as VCR's answers and rationales."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from diptych.core import Batch, Capability, Sample, StateModel, States
from diptych.objectives.candidates import split_candidates
from diptych.objectives.per_sample import PerSample
from diptych.objectives.retrieval import group_sizes


@dataclass(frozen=True)
class ChooseText(PerSample):
    """Choice of a text: the model chooses the right one of several texts.

    Score candidate texts with the head "choice". Each sample is split into one sample per text in
    `truth["candidates"]`.

    softmax  cross-entropy over the candidates of a question (VL-BERT, section 4.2.1; TDEN's code)
    sigmoid  binary cross-entropy of each candidate (VL-BERT's code, CLASSIFIER_SIGMOID)

    List this objective before objectives that mask, so that each candidate is masked separately.
    """

    form: Literal["softmax", "sigmoid"] = "softmax"
    name: str = "choose"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions", "text"})
    heads: ClassVar = frozenset({"choice"})
    changes: ClassVar = "pairs"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [
            replace(one, group=f"{number}:{one.group}")  # a question that is twice in a batch gets two groups
            for number, sample in enumerate(samples)
            for one in split_candidates(sample)
        ]

    def count(self, batch: Batch) -> Tensor:
        """Return the number of questions (softmax) or of candidates (sigmoid)."""
        return torch.tensor(len(group_sizes(batch)) if self.form == "softmax" else len(batch))

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        scores: Tensor = model.heads["choice"](states).float().reshape(len(batch))
        if self.form == "sigmoid":
            return F.binary_cross_entropy_with_logits(scores, batch.matched.to(scores), reduction="sum")
        sizes = group_sizes(batch)
        by_group = pad_sequence(list(torch.split(scores, sizes)), batch_first=True, padding_value=-torch.inf)
        right = pad_sequence(list(torch.split(batch.matched, sizes)), batch_first=True).to(torch.uint8).argmax(1)
        return F.cross_entropy(by_group, right, reduction="sum")
