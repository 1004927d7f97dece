"""Classification of a sentence about an image (NLVR's two classes, visual entailment's three)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import Batch, Capability, StateModel, States
from diptych.objectives.per_sample import PerSample
from diptych.runtime.devices import to_device


@dataclass(frozen=True)
class ClassifyStatement(PerSample):
    """Cross-entropy over the classes of the head; `truth["class"]` is the index of the right one."""

    head: str = "nlvr"
    name: str = "classify_statement"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions", "text"})
    changes: ClassVar = "nothing"

    @property
    def heads(self) -> frozenset[str]:
        return frozenset({self.head})

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch))

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        scores: Tensor = model.heads[self.head](states).float()
        wanted = to_device([truth["class"] for truth in batch.truths], scores.device)
        return F.cross_entropy(scores, wanted, reduction="sum")
