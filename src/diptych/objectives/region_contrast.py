"""Contrastive region prediction: distinguish a masked region from the other masked regions of its image.

Unified VLP's code contains this pretext task, but it is off by default.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, cast

import torch
from torch import Tensor

from diptych.core import Batch, Capability, Sample, StateModel, States
from diptych.objectives.per_sample import PerSample


@dataclass(frozen=True)
class RegionContrast(PerSample):
    """Contrast of hidden regions: the model finds a hidden region among the hidden regions of its image.

    Contrastive loss over the masked regions of an image: each region's query must match the region's own embedding.

    See Unified VLP's modeling.py:1111. The query of a region is the embedding of its place plus the pooled [CLS]. The
    setting `hidden_regions=official` is required: a masked region's input then has neither feature nor place. The loss
    of an image is the mean over its masked regions.
    """

    rate: float = 0.3  # share of the regions that are masked
    name: str = "region_contrast"

    needs: ClassVar[frozenset[Capability]] = frozenset({"regions", "hidden embeddings"})
    heads: ClassVar = frozenset({"pooler"})
    changes: ClassVar = "input"

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        if sample.regions is None:
            return sample
        count = len(sample.regions)
        hidden = torch.zeros(count, dtype=torch.bool)
        hidden[rng.sample(range(count), int(count * self.rate))] = True
        return replace(sample, regions=sample.regions.hide(hidden))

    def count(self, batch: Batch) -> Tensor:
        """Return the number of images with masked regions."""
        return batch.chosen.any(1).sum()

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        chosen = batch.chosen
        queries = states.embedded["places"] + model.heads["pooler"](states.special["cls"])[:, None]
        scores = (queries @ states.embedded["regions"].transpose(1, 2)).float()
        scores = scores.masked_fill(~chosen[:, None], -torch.inf).masked_fill(~chosen.any(1)[:, None, None], 0)
        own = scores.log_softmax(-1).diagonal(dim1=1, dim2=2).masked_fill(~chosen, 0)
        return cast(Tensor, -(own.sum(1) / chosen.sum(1).clamp(min=1)).sum())
