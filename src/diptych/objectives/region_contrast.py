"""A hidden region has to be told from the other hidden ones: a pretext that Unified VLP's code keeps switched off."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch
from torch import Tensor

from diptych.core import Batch, Capability, Model, Sample, StateRequest, States


@dataclass(frozen=True)
class RegionContrast:
    """The place of a hidden region plus the pooled [CLS] must be most like its own embedding (modeling.py:1111).

    For `hidden_regions=official`, where a hidden region keeps neither in the input, and both here. A picture counts
    once, as the mean over its hidden regions.
    """

    rate: float = 0.3
    name: str = "region_contrast"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions", "hidden embeddings"})
    heads: ClassVar = frozenset({"pooler"})
    changes: ClassVar = "input"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._hide(sample, rng) for sample in samples]

    def _hide(self, sample: Sample, rng: Random) -> Sample:
        if sample.regions is None:
            return sample
        count = len(sample.regions)
        hidden = torch.zeros(count, dtype=torch.bool)
        hidden[rng.sample(range(count), int(count * self.rate))] = True
        return replace(sample, regions=sample.regions.hide(hidden))

    def count(self, batch: Batch) -> Tensor:
        return batch.chosen.any(1).sum()

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(heads=frozenset({"pooler"}))

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        chosen = batch.chosen
        asked = states.embedded["places"] + model.heads["pooler"](states.special["cls"])[:, None]
        likeness = (asked @ states.embedded["regions"].transpose(1, 2)).float()
        likeness = likeness.masked_fill(~chosen[:, None], -torch.inf).masked_fill(~chosen.any(1)[:, None, None], 0)
        own = likeness.log_softmax(-1).diagonal(dim1=1, dim2=2).masked_fill(~chosen, 0)
        total: Tensor = -(own.sum(1) / chosen.sum(1).clamp(min=1)).sum()
        return total
