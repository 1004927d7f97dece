"""Masked region classification: predict the detector's class of masked regions (the papers' MRC, MOC, MVRC)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from diptych.core import Batch, Capability, Regions, Sample, StateModel, StateRequest, States
from diptych.core.regions import shared_and_union
from diptych.objectives.per_sample import PerSample
from diptych.objectives.words import mean_by_sample, with_least


@dataclass(frozen=True)
class MaskedRegionClass(PerSample):
    """Classes of hidden regions: the model predicts the detector's class of regions that were hidden.

    Predict the detector's class of chosen regions. Each region is chosen with probability `rate`.

    The share `hidden` of the chosen regions is masked. With `overlap`, instead, all regions are masked whose IoU with a
    chosen region is above `overlap` (TDEN's code: 0.4). They include the chosen regions. So neither a chosen region nor
    an overlapping region reveals the class.
    """

    rate: float = 0.15
    hidden: float = 0.9
    # hard: cross-entropy with the detector's best class, which is never the background (`Batch.background`); soft: with
    # all its probabilities; divergence: KL divergence.
    labels: Literal["hard", "soft", "divergence"] = "hard"
    # Regions whose IoU with a chosen region is above this are masked too. None: only chosen regions are masked.
    overlap: float | None = None
    # A region is predicted only if the sum of its probabilities is within this distance of 1 (VL-BERT's code: 0.1).
    within: float | None = None
    only_matched: bool = False  # True: mismatched pairs are masked, but have no targets
    by_sample: bool = False  # True: average each sample's mean loss
    at_least: int = 0  # minimum number of chosen regions of an image (UNITER's code: 1)
    name: str = "masked_region_class"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions"})
    heads: ClassVar = frozenset({"region_class"})
    changes: ClassVar = "input"

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        if sample.regions is None:
            return sample
        chosen = with_least(_drawn(len(sample.regions), self.rate, rng), self.at_least, rng)
        hidden = chosen & _drawn(len(sample.regions), self.hidden, rng)
        if self.overlap is not None:
            hidden = (overlaps(sample.regions)[chosen] > self.overlap).any(0)
        return replace(sample, regions=sample.regions.hide(hidden, targets_of(sample, chosen, self.only_matched)))

    def count(self, batch: Batch) -> Tensor:
        """Return the number of targets, or of images with targets if `by_sample`."""
        chosen = self.request(batch).mask
        return chosen.any(1).sum() if self.by_sample else chosen.sum()

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        places = batch.where(self.name, self.request)
        scores: Tensor = model.heads["region_class"](states.regions[places]).float()
        if batch.classes is None:
            return scores.sum() * 0
        wanted = batch.best_classes(places) if self.labels == "hard" else batch.classes[places]
        if self.by_sample:
            return mean_by_sample(self._costs(scores, wanted, "none").flatten(1).sum(1), self.request(batch).mask)
        return self._costs(scores, wanted, "sum").sum()

    def _costs(self, scores: Float[Tensor, "n C"], wanted: Tensor, reduction: str) -> Tensor:
        """Return losses (n, 1) per region or (n, C) per region and class.

        With `reduction="sum"` and hard labels, return their sum.
        """
        if self.labels == "hard":
            costs = F.cross_entropy(scores, wanted, reduction=reduction)
            return costs if reduction == "sum" else costs[:, None]
        logs = scores.log_softmax(-1)
        return F.kl_div(logs, wanted, reduction=reduction) if self.labels == "divergence" else -(wanted * logs)

    def request(self, batch: Batch) -> StateRequest:
        """Request the states of chosen regions that have a label."""
        labelled = batch.has_class(background=self.labels != "hard")
        if self.within is not None and batch.classes is not None:
            labelled &= (batch.classes.sum(-1, dtype=torch.float32) - 1).abs() <= self.within
        return StateRequest(regions=batch.chosen & batch.regions_present & labelled)


def targets_of(sample: Sample, chosen: Bool[Tensor, "R"], only_matched: bool) -> Bool[Tensor, "R"]:
    """Return a mask of the regions to predict: `chosen`, or no region for a mismatched pair if `only_matched`."""
    return chosen if sample.matched or not only_matched else torch.zeros_like(chosen)


def overlaps(regions: Regions) -> Float[Tensor, "R R"]:
    """Return the IoU of each pair of regions, computed as in TDEN's code: boxes are in pixels and include their last
    pixel.
    """
    boxes = regions.boxes * torch.tensor([*regions.size, *regions.size])
    shared, union = shared_and_union(boxes[:, None], boxes, edge=1)
    return shared / union


def _drawn(count: int, share: float, rng: Random) -> Bool[Tensor, "R"]:
    return torch.tensor([rng.random() < share for _ in range(count)], dtype=torch.bool)
