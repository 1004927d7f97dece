"""To tell right pairs of pictures and captions from wrong ones: any model that reads both goes with it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from diptych.core import Objective, Vocabulary
from diptych.objectives import MatchGroups, OneForward, Schedule
from diptych.systems.objectives.kind import Objectives


class RetrievalObjectives(Objectives):
    """Weights of the three losses of ImageBERT's section 4.4; 0: off. Table 4 finds binary alone the best."""

    kind: Literal["retrieval"] = "retrieval"
    """Kind of objectives."""
    binary: NonNegativeFloat = 1.0
    """Weight of the binary loss of each pair; 0: off."""
    choice: NonNegativeFloat = 0.0
    """Weight of the multi-class loss over the pairs of a group; 0: off."""
    triplet: NonNegativeFloat = 0.0
    """Weight of the triplet loss against the hardest wrong pair; 0: off."""
    margin: NonNegativeFloat = 0.2
    """Margin of the triplet loss; the paper's formula has none."""
    on: Literal["probability", "log-odds"] = "probability"
    """What the margin is a margin of."""
    pairs: Annotated[int, Field(ge=2)] = 4
    """Pairs of a group: a right one, and the others wrong."""
    negatives: Literal["captions", "pictures", "both"] = "both"
    """What a wrong pair gets from another: captions, pictures, or half of each."""

    @model_validator(mode="after")
    def _some(self) -> RetrievalObjectives:
        if not (self.binary or self.choice or self.triplet):
            raise ValueError("binary, choice and triplet all have weight 0, so there is nothing to train")
        return self

    @property
    def reads_pairs(self) -> bool:
        return True

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        weights = {form: getattr(self, form) for form in ("binary", "choice", "triplet")}
        losses = tuple(
            MatchGroups(form, self.pairs, self.negatives, self.margin, self.on)  # type: ignore[arg-type]
            for form, weight in weights.items()
            if weight
        )
        named: tuple[Objective, ...] = losses
        return Schedule(((OneForward(named, {one.name: weights[one.form] for one in losses}), 1.0),))
