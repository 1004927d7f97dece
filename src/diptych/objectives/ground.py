"""Referring expressions: find the region that an expression describes (RefCOCO+)."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F

from diptych.core import Batch, Capability, StateModel, StateRequest, States
from diptych.core.regions import shared_and_union
from diptych.objectives.per_sample import PerSample
from diptych.runtime.devices import to_device


@dataclass(frozen=True)
class GroundExpression(PerSample):
    """Regions of expressions: the model finds the region that an expression describes.

    Binary cross-entropy over regions: a region is right if its IoU with `truth["box"]` is above `overlap`.

    See VL-BERT, section 4.2.3. An image without a right region has no targets.
    """

    overlap: float = 0.5  # a region is right if its IoU with the true box is above this
    name: str = "ground"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions", "text"})
    heads: ClassVar = frozenset({"region_score"})
    changes: ClassVar = "nothing"

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(regions=batch.regions_present & self.right(batch).any(1, keepdim=True))

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        right, places = self.right(batch), batch.where(self.name, self.request)
        scores: Tensor = model.heads["region_score"](states.regions[places]).float().reshape(-1)
        return F.binary_cross_entropy_with_logits(scores, right[places].to(scores), reduction="sum")

    def right(self, batch: Batch) -> Bool[Tensor, "B R"]:
        """Return a mask of the regions whose IoU with the true box is above `overlap`."""
        truths = to_device([truth["box"] for truth in batch.truths], batch.boxes.device)[:, None]
        shared, union = shared_and_union(batch.boxes, truths)
        return (shared > self.overlap * union) & batch.regions_present
