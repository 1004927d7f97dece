"""Some regions are hidden and the detector's class has to be guessed (the papers' MRC, MOC, MVRC with labels)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from diptych.core import Batch, Capability, Model, Regions, Sample, StateRequest, States
from diptych.objectives.words import mean_by_sample, with_least
from diptych.runtime.devices import to_device


@dataclass(frozen=True)
class MaskedRegionClass:
    """Each region is chosen with probability `rate`; of the chosen, `hidden` are hidden and the rest stay visible.

    `overlap`: where given, every region that overlaps a chosen one by more than this IoU is hidden too, the chosen
    itself among them, so that nothing tells its class through a neighbour and none stays visible (TDEN's code: 0.4).
    """

    rate: float = 0.15
    hidden: float = 0.9
    # The detector's best class, all its probabilities, or those as a divergence, which is 0 where they are met.
    labels: Literal["hard", "soft", "divergence"] = "hard"
    overlap: float | None = None
    within: float | None = None  # asked are regions whose probabilities sum to 1 within this (VL-BERT's code: 0.1)
    only_matched: bool = False  # of a mismatched pair regions are hidden too, or that would tell it, and none is asked
    by_sample: bool = False  # as in MaskedLanguage
    at_least: int = 0  # regions that are chosen of each picture, where it has as many (UNITER's code: 1)
    background: int | None = None  # the class that is no answer to "hard": the best of the others is (UNITER's code: 0)
    name: str = "masked_region_class"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions"})
    heads: ClassVar = frozenset({"region_class"})
    changes: ClassVar = "input"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._hide(sample, rng) for sample in samples]

    def _hide(self, sample: Sample, rng: Random) -> Sample:
        if sample.regions is None:
            return sample
        chosen = torch.tensor([rng.random() < self.rate for _ in range(len(sample.regions))], dtype=torch.bool)
        chosen = with_least(chosen, self.at_least, rng)
        hidden = torch.tensor([rng.random() < self.hidden for _ in range(len(sample.regions))], dtype=torch.bool)
        hidden = chosen & hidden
        if self.overlap is not None:
            hidden = (overlaps(sample.regions)[chosen] > self.overlap).any(0)
        return replace(sample, regions=sample.regions.hide(hidden, targets_of(sample, chosen, self.only_matched)))

    def count(self, batch: Batch) -> Tensor:
        asked = self.request(batch).mask
        return asked.any(1).sum() if self.by_sample else asked.sum()

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        asked = batch.where(self.name, self.request)
        scores: Tensor = model.heads["region_class"](states.regions[asked]).float()
        if batch.classes is None:
            return scores.sum() * 0
        wanted = batch.classes[asked]
        if self.by_sample:
            return mean_by_sample(self._costs(scores, wanted, "none").flatten(1).sum(1), self.request(batch).mask)
        return self._costs(scores, wanted, "sum").sum()

    def _costs(self, scores: Float[Tensor, "n C"], wanted: Float[Tensor, "n C"], reduction: str) -> Tensor:
        """By region, by region and class, or in one sum."""
        if self.labels == "hard":
            if self.background is not None:
                wanted = wanted.index_fill(-1, to_device([self.background], wanted.device), -1)
            costs = F.cross_entropy(scores, wanted.argmax(-1), reduction=reduction)
            return costs if reduction == "sum" else costs[:, None]
        logs = scores.log_softmax(-1)
        return F.kl_div(logs, wanted, reduction=reduction) if self.labels == "divergence" else -(wanted * logs)

    def request(self, batch: Batch) -> StateRequest:
        """The chosen regions of which a detector has said something."""
        if batch.classes is None:
            return StateRequest(regions=torch.zeros_like(batch.chosen))
        sums = batch.classes.sum(-1, dtype=torch.float32)  # the CPU's batch has them in half precision
        labelled = sums > 0 if self.within is None else (sums - 1).abs() <= self.within
        return StateRequest(regions=batch.chosen & batch.regions_present & labelled)


def targets_of(sample: Sample, chosen: Bool[Tensor, "R"], only_matched: bool) -> Bool[Tensor, "R"]:
    """None of a mismatched pair, where that is wanted: the text says nothing of its regions."""
    return chosen if sample.matched or not only_matched else torch.zeros_like(chosen)


def overlaps(regions: Regions) -> Float[Tensor, "R R"]:
    """IoU of each two boxes, measured as TDEN's code does: in pixels, ends included."""
    width, height = regions.size
    boxes = regions.boxes * torch.tensor([width, height, width, height])
    starts, ends = torch.maximum(boxes[:, None, :2], boxes[:, :2]), torch.minimum(boxes[:, None, 2:], boxes[:, 2:])
    shared = (ends - starts + 1).clamp(min=0).prod(-1)
    areas = (boxes[:, 2:] - boxes[:, :2] + 1).prod(-1)
    return shared / (areas[:, None] + areas - shared)
