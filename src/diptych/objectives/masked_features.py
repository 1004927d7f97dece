"""Some regions are hidden and their features have to be told (ImageBERT's MRFR; UNITER's MRFR)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import Batch, Capability, Model, Sample, StateRequest, States
from diptych.objectives.masked_regions import targets_of
from diptych.objectives.words import with_least


@dataclass(frozen=True)
class MaskedRegionFeature:
    """The squared distance between what the head "region_feature" says and the feature that was hidden.

    Beside another objective that has chosen regions (MOC) it asks for the same ones; alone, it chooses as that one
    does. mean: over the numbers of a feature, which is of the size of the other losses. sum: over them, as the paper's
    formula has it.
    """

    rate: float = 0.15
    hidden: float = 0.9  # of the chosen
    distance: Literal["mean", "sum"] = "mean"
    only_matched: bool = False  # as in MaskedRegionClass
    at_least: int = 0  # likewise
    name: str = "masked_region_feature"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions"})
    heads: ClassVar = frozenset({"region_feature"})
    changes: ClassVar = "input"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._hide(sample, rng) for sample in samples]

    def _hide(self, sample: Sample, rng: Random) -> Sample:
        regions = sample.regions
        if regions is None or regions.chosen is not None:
            return sample
        drawn = torch.tensor([[rng.random(), rng.random()] for _ in range(len(regions))]).view(-1, 2)
        chosen = with_least(drawn[:, 0] < self.rate, self.at_least, rng)
        asked = targets_of(sample, chosen, self.only_matched)
        return replace(sample, regions=regions.hide(chosen & (drawn[:, 1] < self.hidden), asked))

    def count(self, batch: Batch) -> Tensor:
        return self.request(batch).mask.sum()

    def request(self, batch: Batch) -> StateRequest:
        chosen = torch.zeros_like(batch.chosen) if batch.features is None else batch.chosen
        return StateRequest(regions=chosen & batch.regions_present)

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        asked = batch.where(self.name, self.request)
        predicted: Tensor = model.heads["region_feature"](states.regions[asked]).float()
        if batch.features is None:
            return predicted.sum() * 0
        distances = F.mse_loss(predicted, batch.features[asked].float(), reduction="none")
        return (distances.sum(-1) if self.distance == "sum" else distances.mean(-1)).sum()
