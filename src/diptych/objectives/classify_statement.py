"""Classification of a sentence about an image, such as NLVR (two classes) or visual entailment (three classes)."""

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
    """Classes of texts: the model chooses the class of a text about the image, such as true or false.

    Cross-entropy over classes. `truth["class"]` is the index of the right class.
    """

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
