"""What UNITER is pre-trained by (section 3.2): one task per step, drawn; either words or regions are hidden, never both
(conditional masking).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field, NonNegativeFloat, model_validator
from torch import Tensor
from torch.nn import functional as F

from diptych.plugin import (
    BIDIRECTIONAL,
    Batch,
    Capability,
    ImageTextMatching,
    MaskedLanguage,
    MaskedRegionClass,
    MaskedRegionFeature,
    Objective,
    Objectives,
    OneForward,
    Schedule,
    StateModel,
    StateRequest,
    States,
    Vocabulary,
)


@dataclass(frozen=True)
class WordRegionAlignment(Objective):
    """WRA: the cost of moving the words ([CLS] and [SEP] among them) onto the regions, by cosine distance; low for
    pairs that belong together, high for the others.

    The plan is IPOT's (Xie et al. 2019), 50 proximal steps of strength 0.5, one inner step each, without a gradient of
    its own (model/ot.py). The others' distance counts as minus (pretrain.py). Text alone is not asked.
    """

    beta: float = 0.5
    steps: int = 50

    needs: ClassVar[frozenset[Capability]] = frozenset({"text", "regions"})
    heads: ClassVar = frozenset({"match"})  # one that reads [CLS], whose state is asked for by it

    def count(self, batch: Batch) -> Tensor:
        return batch.regions_present.any(1).sum()

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(regions=batch.regions_present, text=batch.text_present, heads=self.heads)

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        with torch.autocast(states.text.device.type, enabled=False):
            found = self.distances(states, batch)
        return torch.where(batch.matched, found, -found).sum()

    def distances(self, states: States, batch: Batch) -> Float[Tensor, "B"]:
        """Of each pair; 0 for text alone."""
        words = torch.cat([states.special["cls"][:, None], states.text], 1).float()
        there = torch.cat([batch.text_present.new_ones(len(batch), 1), batch.text_present], 1)
        cost = cosine_distances(words, states.regions.float())
        cost = cost.masked_fill(~(there[..., None] & batch.regions_present[:, None]), 0)
        plan = transport(cost.detach(), there, batch.regions_present, self.beta, self.steps)
        return (cost * plan).sum((1, 2))


def cosine_distances(words: Float[Tensor, "B T D"], regions: Float[Tensor, "B R D"]) -> Float[Tensor, "B T R"]:
    return 1 - F.normalize(words, dim=-1, eps=1e-5) @ F.normalize(regions, dim=-1, eps=1e-5).mT


def transport(
    cost: Float[Tensor, "B T R"], words: Bool[Tensor, "B T"], regions: Bool[Tensor, "B R"], beta: float, steps: int
) -> Float[Tensor, "B T R"]:
    """IPOT's plan between words and regions that are there, each of equal mass: proximal steps, each one round of
    scaling rows and columns. Nothing is moved where there are no regions."""
    there = (words[..., None] & regions[:, None]).to(cost.dtype)
    kernel, plan = torch.exp(-cost / beta) * there, there
    rows, columns = (mask / mask.sum(1, keepdim=True).clamp(min=1) for mask in (words, regions))
    scale = rows
    tiny = torch.finfo(cost.dtype).tiny
    for _ in range(steps):
        plan = kernel * plan
        other = columns / (plan.mT @ scale[..., None])[..., 0].clamp(min=tiny)
        scale = rows / (plan @ other[..., None])[..., 0].clamp(min=tiny)
        plan = scale[..., None] * plan * other[:, None]
    return plan


class UniterObjectives(Objectives):
    """How often each task is drawn, as shares of all; 0: never. The defaults are the code's mix for the model whose
    tasks the paper finds best, MLM + ITM + WRA + MRFR + MRC-kl (Table 2; config/pretrain-alldata-base-8gpu.json)."""

    kind: Literal["uniter"] = "uniter"
    """Kind of objectives."""
    words: NonNegativeFloat = 4.0
    """How often words are hidden (MLM)."""
    matching: NonNegativeFloat = 3.0
    """How often pairs are told from wrong ones (ITM)."""
    alignment: NonNegativeFloat = 0.1
    """Weight of the alignment of words and regions (WRA) beside ITM, in the same steps; 0: off."""
    region_features: NonNegativeFloat = 2.0
    """How often regions are hidden and their features told (MRFR)."""
    region_classes: NonNegativeFloat = 0.0
    """How often regions are hidden and the detector's best class is told (MRC)."""
    region_divergence: NonNegativeFloat = 2.0
    """How often all of the detector's probabilities are told, as a divergence (MRC-kl)."""
    rate: float = Field(0.15, ge=0, le=1)
    """Chance of each word, or of each region, to be hidden; one is at least."""
    broken: float = Field(0.5, ge=0, le=1)
    """Share of the pairs of ITM that get another's picture."""

    @model_validator(mode="after")
    def _some(self) -> UniterObjectives:
        if not (self.words or self.matching or self.region_features or self.region_classes or self.region_divergence):
            raise ValueError(
                "words, matching, region_features, region_classes and region_divergence are all 0: nothing to train"
            )
        return self

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """Regions that are chosen are all hidden (data/mrm.py), and words are in BERT's way (data/mlm.py)."""
        words = MaskedLanguage(
            vocabulary, rate=self.rate, attention=((BIDIRECTIONAL, 1.0),), hides_end=False, by_chance=True
        )
        matching = ImageTextMatching(self.broken, "pictures")
        alignment = (WordRegionAlignment(),) if self.alignment else ()
        weights = {one.name: self.alignment for one in alignment}
        hard = MaskedRegionClass(self.rate, 1.0, at_least=1)
        soft = replace(hard, labels="divergence", name="masked_region_divergence")
        drawn = (
            (OneForward((words,)), self.words),
            (OneForward((matching, *alignment), weights), self.matching),
            (OneForward((MaskedRegionFeature(self.rate, 1.0, at_least=1),)), self.region_features),
            (OneForward((hard,)), self.region_classes),
            (OneForward((soft,)), self.region_divergence),
        )
        return Schedule(tuple((update, share) for update, share in drawn if share), order="sampled")
