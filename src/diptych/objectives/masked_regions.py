"""Some regions are hidden and the detector's class has to be guessed (the papers' MRC, MOC, MVRC with labels)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import Batch, Model, Sample, States


@dataclass(frozen=True)
class MaskedRegionClass:
    """Each region is chosen with probability `rate`; of the chosen, `hidden` are hidden and the rest stay visible."""

    rate: float = 0.15
    hidden: float = 0.9
    labels: Literal["hard", "soft"] = "hard"  # the detector's best class, or all its probabilities
    only_matched: bool = False
    name: str = "masked_region_class"

    needs: ClassVar = frozenset({"regions"})
    heads: ClassVar = frozenset({"region_class"})
    changes: ClassVar = "input"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._hide(sample, rng) for sample in samples]

    def _hide(self, sample: Sample, rng: Random) -> Sample:
        if sample.regions is None or (self.only_matched and not sample.matched):
            return sample
        chosen = torch.tensor([rng.random() < self.rate for _ in range(len(sample.regions))], dtype=torch.bool)
        hidden = torch.tensor([rng.random() < self.hidden for _ in range(len(sample.regions))], dtype=torch.bool)
        return replace(sample, regions=sample.regions.hide(chosen & hidden, chosen))

    def count(self, batch: Batch) -> Tensor:
        return self._asked(batch).sum()

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        asked = self._asked(batch)
        scores: Tensor = model.heads["region_class"](states.regions[asked]).float()
        if batch.classes is None:
            return scores.sum() * 0
        wanted = batch.classes[asked]
        if self.labels == "hard":
            return F.cross_entropy(scores, wanted.argmax(-1), reduction="sum")
        return -(wanted * scores.log_softmax(-1)).sum()

    def _asked(self, batch: Batch) -> Tensor:
        """The chosen regions of which a detector has said something."""
        if batch.classes is None:
            return torch.zeros_like(batch.chosen)
        return batch.chosen & batch.regions_present & (batch.classes.sum(-1) > 0)
