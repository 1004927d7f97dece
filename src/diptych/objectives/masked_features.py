"""Masked region feature regression: predict the features of masked regions (MRFR of ImageBERT and UNITER)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from diptych.core import Batch, Capability, Places, Sample, StateModel, StateRequest, States
from diptych.objectives.masked_regions import targets_of
from diptych.objectives.per_sample import PerSample
from diptych.objectives.words import with_least


@dataclass(frozen=True)
class MaskedRegionFeature(PerSample):
    """Features of hidden regions: the model predicts the features of regions that were hidden.

    Predict the features of masked regions with the head "region_feature". The loss is the squared distance.

    See ImageBERT, section 4.3, Task 3. If another objective, such as MOC, has already chosen regions, the same regions
    are predicted. Otherwise this objective chooses regions by the same rule.

    mean  the mean over the values of a feature; the loss is then about as large as other losses
    sum   the sum over the values, as in the paper's formula
    """

    rate: float = 0.15  # probability that a region is chosen
    hidden: float = 0.9  # probability that a chosen region is masked
    distance: Literal["mean", "sum"] = "mean"
    only_matched: bool = False  # True: mismatched pairs are masked, but have no targets
    at_least: int = 0  # minimum number of chosen regions of an image
    name: str = "masked_region_feature"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions"})
    heads: ClassVar = frozenset({"region_feature"})
    changes: ClassVar = "input"

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        regions = sample.regions
        if regions is None or regions.chosen is not None:
            return sample
        drawn = torch.tensor([[rng.random(), rng.random()] for _ in range(len(regions))]).view(-1, 2)
        chosen = with_least(drawn[:, 0] < self.rate, self.at_least, rng)
        targets = targets_of(sample, chosen, self.only_matched)
        return replace(sample, regions=regions.hide(chosen & (drawn[:, 1] < self.hidden), targets))

    def request(self, batch: Batch) -> StateRequest:
        chosen = torch.zeros_like(batch.chosen) if batch.features is None else batch.chosen
        return StateRequest(regions=chosen & batch.regions_present)

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        return feature_distance(model, states.regions, batch, batch.where(self.name, self.request), self.distance)


def feature_distance(
    model: StateModel, states: Float[Tensor, "B R D"], batch: Batch, places: Places, over_values: Literal["mean", "sum"]
) -> Float[Tensor, ""]:
    """Return the squared distances between predicted and true region features, summed over `places`.

    The result is 0 if the batch has no features.
    """
    predicted: Tensor = model.heads["region_feature"](states[places]).float()
    if batch.features is None:
        return predicted.sum() * 0
    squares = (predicted - batch.features[places].detach().float()).square()
    return (squares.sum(-1) if over_values == "sum" else squares.mean(-1)).sum()
