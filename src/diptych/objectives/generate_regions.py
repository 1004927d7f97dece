"""Generation of region features from the text alone (XGPT's TIFG)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor

from diptych.core import REGIONS_AFTER_TEXT, Batch, Capability, Sample, StateModel, StateRequest, States, Vocabulary
from diptych.objectives.masked_features import feature_distance
from diptych.objectives.per_sample import PerSample
from diptych.runtime.errors import DataError


@dataclass(frozen=True)
class GenerateRegions(PerSample):
    """Regions from text: the model predicts the features of all regions from the caption.

    Predict the features of all regions from the text. The loss is the squared distance (XGPT, section 4.3, Eq. 5).

    The target has one learnt query per region, in the detector's order. The features to predict are the detector's,
    without gradient. If the targets were learnt projections, they could all collapse to the same vector.

    error   "mean": the mean over the values of a feature ("mean squared error", section 4.3); "sum": their sum (Eq. 5)
    """

    vocabulary: Vocabulary
    error: Literal["mean", "sum"] = "mean"
    name: str = "generate_regions"

    needs: ClassVar[frozenset[Capability]] = frozenset({"target", "region queries"})
    heads: ClassVar = frozenset({"region_feature"})
    changes: ClassVar = "input"

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        count = 0 if sample.regions is None else len(sample.regions)
        queries = torch.full((count,), self.vocabulary.mask, dtype=torch.long)
        return replace(sample, attention=REGIONS_AFTER_TEXT, target=queries, target_labels=None)

    def request(self, batch: Batch) -> StateRequest:
        assert batch.target_present is not None
        return StateRequest(target=batch.target_present & batch.regions_present)

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        assert states.target is not None
        places = batch.where(self.name, self.request)
        if batch.features is None and len(places[0]):
            raise DataError(f"{self.name} needs region features, but images have none; extract them", key=batch.keys[0])
        return feature_distance(model, states.target, batch, places, self.error)
