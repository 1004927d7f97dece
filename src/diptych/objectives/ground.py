"""Which region an expression means (RefCOCO+)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, Batch, Capability, Model, Sample, StateRequest, States
from diptych.runtime.devices import to_device


@dataclass(frozen=True)
class GroundExpression:
    """Each region by itself: is it the one? It is where it overlaps `truth["box"]` by more than `overlap`.

    VL-BERT, section 4.2.3. A picture in which no region does teaches nothing and is left out.
    """

    overlap: float = 0.5  # IoU
    name: str = "ground"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions", "text"})
    heads: ClassVar = frozenset({"region_score"})
    changes: ClassVar = "nothing"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [replace(sample, attention=BIDIRECTIONAL) for sample in samples]

    def count(self, batch: Batch) -> Tensor:
        """Regions that are asked about."""
        return self.request(batch).mask.sum()

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(regions=batch.regions_present & self.right(batch).any(1, keepdim=True))

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        right, asked = self.right(batch), batch.where(self.name, self.request)
        scores: Tensor = model.heads["region_score"](states.regions[asked]).float().reshape(-1)
        return F.binary_cross_entropy_with_logits(scores, right[asked].to(scores), reduction="sum")

    def right(self, batch: Batch) -> Bool[Tensor, "B R"]:
        truths = to_device([truth["box"] for truth in batch.truths], batch.boxes.device)[:, None]
        starts = torch.maximum(batch.boxes[..., :2], truths[..., :2])
        ends = torch.minimum(batch.boxes[..., 2:], truths[..., 2:])
        shared = (ends - starts).clamp(min=0).prod(-1)
        areas = (batch.boxes[..., 2:] - batch.boxes[..., :2]).prod(-1) + (truths[..., 2:] - truths[..., :2]).prod(-1)
        return (shared > self.overlap * (areas - shared)) & batch.regions_present
