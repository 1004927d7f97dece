"""To choose among texts, to find what an expression means, to judge statements: any model that reads goes with them."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat

from diptych.core import BIDIRECTIONAL, Vocabulary
from diptych.core.shares import Share
from diptych.models.visual import Source
from diptych.objectives import (
    ChooseText,
    ClassifyStatement,
    GroundExpression,
    MaskedLanguage,
    MaskedRegionClass,
    Schedule,
    SeenRegionClass,
    together,
)
from diptych.systems.objectives.kind import SCHEMES, Objectives, SeenClasses, weighed


class VcrObjectives(SeenClasses):
    """VCR. VL-BERT's paper adds masked region classification; its code asks the class of every region, none hidden."""

    kind: Literal["vcr"] = "vcr"
    """Kind of objectives."""
    vcr_loss: Literal["softmax", "sigmoid"] = "softmax"
    """softmax: the texts of a question against each other; sigmoid: each by itself."""
    region_classes: Literal["none", "masked", "every"] = "none"
    """Which regions' classes are asked beside: none, masked ones, or every one with none hidden."""
    region_weight: NonNegativeFloat = 1.0
    """Weight of the regions' classes."""
    words: NonNegativeFloat = 0.0
    """Weight of masked words of all four texts; 0: none is hidden."""
    masking: Source = "paper"
    """paper: a chosen piece becomes [MASK]; official: 80/10/10, as VL-BERT's code does in pre-training."""
    rate: Share = 0.15
    """Share of the words and of the regions that are hidden."""
    region_hidden: Share = 1.0
    """Share of the chosen regions that are hidden, where masked ones are asked; the others keep their feature."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """What makes the groups comes first, or four texts would share what is hidden."""
        hidden = MaskedLanguage(
            vocabulary,
            rate=self.rate,
            scheme=SCHEMES[self.masking],
            attention=((BIDIRECTIONAL, 1.0),),
            hides_end=False,
        )
        every = self.region_classes == "every"
        regions = MaskedRegionClass(*(1.0, 0.0) if every else (self.rate, self.region_hidden))
        return weighed(
            (ChooseText(self.vcr_loss), 1.0),
            (hidden, self.words),
            (regions, self.region_weight if self.region_classes != "none" else 0.0),
            (SeenRegionClass(), self.seen_classes),
        )


class ReferringObjectives(SeenClasses):
    """Referring expressions."""

    kind: Literal["referring"] = "referring"
    """Kind of objectives."""
    overlap: Share = 0.5
    """IoU with the true box over which a region is a right one."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return weighed((GroundExpression(self.overlap), 1.0), (SeenRegionClass(), self.seen_classes))


class NlvrObjectives(Objectives):
    """Statements that are true or false."""

    kind: Literal["nlvr"] = "nlvr"
    """Kind of objectives."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(ClassifyStatement())
