"""Classification of visible regions from their pixels alone, before cross-modal layers."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import Batch, Capability, Sample, StateModel, StateRequest, States
from diptych.objectives.per_sample import PerSample


@dataclass(frozen=True)
class SeenRegionClass(PerSample):
    """Cross-entropy of one layer over each visible region's feature, a mean over regions, as in Fast R-CNN.

    It keeps a network that is trained from pixels able to classify objects, or makes it so. VL-BERT's code has it as a
    switch for VCR (common/fast_rcnn.py, `regularizing_predictor`: ENABLE_CNN_REG_LOSS without CNN_LOSS_TOP). It is off
    in the released configurations, which classify the same regions from the top of the model.
    """

    name: str = "seen_region_class"

    needs: ClassVar[frozenset[Capability]] = frozenset({"pixels"})
    heads: ClassVar = frozenset({"seen_class"})
    changes: ClassVar = "nothing"

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        return sample

    def request(self, batch: Batch) -> StateRequest:
        """The regions that are not hidden and have class probabilities from a detector."""
        if batch.classes is None:
            return StateRequest(embedded=torch.zeros_like(batch.hidden))
        return StateRequest(embedded=batch.regions_present & ~batch.hidden & (batch.classes > 0).any(-1))

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        places = batch.where(self.name, self.request)
        scores: Tensor = model.heads["seen_class"](states.embedded["features"][places]).float()
        if batch.classes is None:
            return scores.sum() * 0
        return F.cross_entropy(scores, batch.classes[places].argmax(-1), reduction="sum")
