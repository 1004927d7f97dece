"""A decoder tells what the regions look like from the text alone (XGPT's TIFG)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor

from diptych.core import REGIONS_AFTER_TEXT, Batch, Capability, Model, Sample, StateRequest, States, Vocabulary
from diptych.runtime.errors import DataError


@dataclass(frozen=True)
class GenerateRegions:
    """The squared distance between region t's feature and what is said at target place t (XGPT, Eq. 5).

    The target block holds a query a region, best first as the detector has them; what stands at a place is a vector
    that the model has learnt for it. The wanted features are the detector's own and carry no gradient: a projection of
    them that learns could win by collapsing to a point.

    error   "mean": over the numbers of a feature too, as "mean squared error" says (section 4.3); "sum": Eq. 5
    """

    vocabulary: Vocabulary
    error: Literal["mean", "sum"] = "mean"
    name: str = "generate_regions"

    needs: ClassVar[frozenset[Capability]] = frozenset({"target", "region queries"})
    heads: ClassVar = frozenset({"region_feature"})
    changes: ClassVar = "input"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._ask(sample) for sample in samples]

    def _ask(self, sample: Sample) -> Sample:
        count = 0 if sample.regions is None else len(sample.regions)
        queries = torch.full((count,), self.vocabulary.mask, dtype=torch.long)
        return replace(sample, attention=REGIONS_AFTER_TEXT, target=queries, target_labels=None)

    def count(self, batch: Batch) -> Tensor:
        return self.request(batch).mask.sum()

    def request(self, batch: Batch) -> StateRequest:
        assert batch.target_present is not None
        return StateRequest(target=batch.target_present & batch.regions_present)

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        assert states.target is not None
        asked = batch.where(self.name, self.request)
        predicted: Tensor = model.heads["region_feature"](states.target[asked]).float()
        if batch.features is None:
            if len(asked[0]):
                raise DataError(f"{self.name} wants region features, and some pictures have none", key=batch.keys[0])
            return predicted.sum() * 0
        squares = (predicted - batch.features[asked].detach().float()).square()
        return (squares.sum(-1) if self.error == "sum" else squares.mean(-1)).sum()
