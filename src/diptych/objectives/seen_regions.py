"""The class of every region that can be seen, told from its pixels alone, before any word is near."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import Batch, Capability, Model, Sample, StateRequest, States


@dataclass(frozen=True)
class SeenRegionClass:
    """Keeps a network that learns from pixels one that tells objects apart, or makes it one, as Fast R-CNN is taught:
    one layer over each region's feature, cross-entropy, mean over regions.

    VL-BERT's code has it as a switch of VCR (common/fast_rcnn.py, `regularizing_predictor`: ENABLE_CNN_REG_LOSS without
    CNN_LOSS_TOP), off in the released configurations, which ask the same over the top of the model.
    """

    name: str = "seen_region_class"

    needs: ClassVar[frozenset[Capability]] = frozenset({"pixels"})
    heads: ClassVar = frozenset({"seen_class"})
    changes: ClassVar = "nothing"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return samples

    def count(self, batch: Batch) -> Tensor:
        return self.request(batch).mask.sum()

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        asked = batch.where(self.name, self.request)
        scores: Tensor = model.heads["seen_class"](states.embedded["features"][asked]).float()
        if batch.classes is None:
            return scores.sum() * 0
        return F.cross_entropy(scores, batch.classes[asked].argmax(-1), reduction="sum")

    def request(self, batch: Batch) -> StateRequest:
        """The regions that are not hidden and of which a detector has said something."""
        if batch.classes is None:
            return StateRequest(embedded=torch.zeros_like(batch.hidden))
        return StateRequest(embedded=batch.regions_present & ~batch.hidden & (batch.classes > 0).any(-1))
