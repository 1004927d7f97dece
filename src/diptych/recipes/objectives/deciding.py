"""To choose among texts, to find what an expression means, to judge statements: any model that reads goes with them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat

from diptych.core import BIDIRECTIONAL, Objective, Vocabulary
from diptych.objectives import (
    ChooseText,
    GroundExpression,
    JudgeStatement,
    MaskedLanguage,
    MaskedRegionClass,
    OneForward,
    Schedule,
    together,
)
from diptych.recipes.objectives.kind import Objectives

Share = Annotated[float, Field(ge=0, le=1)]


class Choosing(Objectives):
    """VCR. VL-BERT's paper adds masked region classification; its code asks the class of every region, none hidden."""

    kind: Literal["choose"] = "choose"
    vcr_loss: Literal["softmax", "sigmoid"] = "softmax"  # texts against each other, or each by itself
    region_classes: Literal["none", "masked", "every"] = "none"
    region_weight: NonNegativeFloat = 1.0
    words: NonNegativeFloat = 0.0  # weight of guessing hidden words of all four texts; 0: none is hidden
    rate: Share = 0.15  # of words and of regions

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """What makes the groups comes first, or four texts would share what is hidden."""
        objectives: list[Objective] = [ChooseText(self.vcr_loss)]
        weights: dict[str, float] = {}
        if self.words:
            hidden = MaskedLanguage(vocabulary, rate=self.rate, attention=((BIDIRECTIONAL, 1.0),), hides_end=False)
            objectives.append(hidden)
            weights[hidden.name] = self.words
        if self.region_classes != "none" and self.region_weight:
            every = self.region_classes == "every"
            regions = MaskedRegionClass(rate=1.0, hidden=0.0) if every else MaskedRegionClass(rate=self.rate)
            objectives.append(regions)
            weights[regions.name] = self.region_weight
        return Schedule(((OneForward(tuple(objectives), weights), 1.0),))


class Grounding(Objectives):
    """Referring expressions."""

    kind: Literal["ground"] = "ground"
    overlap: Share = 0.5  # IoU with the true box over which a region is a right one

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(GroundExpression(self.overlap))


class Judging(Objectives):
    """Statements that are true or false."""

    kind: Literal["judge"] = "judge"

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(JudgeStatement())
