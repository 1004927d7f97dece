"""Classification of unmasked regions from their pixels, before any cross-modal layer."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from diptych.core import Batch, Capability, Sample, StateModel, StateRequest, States
from diptych.objectives.per_sample import PerSample


@dataclass(frozen=True)
class SeenRegionClass(PerSample):
    """Classes of visible regions: the network that reads pixels predicts the detector's classes.

    Classify each unmasked region with a linear layer on its feature, as in Fast R-CNN.

    The loss is a mean over regions.

    This loss trains the network that reads pixels to recognise objects. In VL-BERT's code it is an option for VCR
    (common/fast_rcnn.py, `regularizing_predictor`: ENABLE_CNN_REG_LOSS without CNN_LOSS_TOP). The released
    configurations do not use it; they classify regions from the model's last layer.
    """

    name: str = "seen_region_class"

    needs: ClassVar[frozenset[Capability]] = frozenset({"pixels"})
    heads: ClassVar = frozenset({"seen_class"})
    changes: ClassVar = "nothing"

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        return sample

    def request(self, batch: Batch) -> StateRequest:
        """Request the input embeddings of unmasked regions that have a class."""
        return StateRequest(embedded=batch.regions_present & ~batch.hidden & batch.has_class())

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        places = batch.where(self.name, self.request)
        scores: Tensor = model.heads["seen_class"](states.embedded["features"][places]).float()
        if batch.classes is None:
            return scores.sum() * 0
        return F.cross_entropy(scores, batch.best_classes(places), reduction="sum")
