"""ImageBERT's: pairs broken, words and regions hidden, all told from one pass."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from diptych.core import BIDIRECTIONAL, Objective, Vocabulary
from diptych.objectives import (
    ImageTextMatching,
    MaskedLanguage,
    MaskedRegionClass,
    MaskedRegionFeature,
    OneForward,
    Schedule,
)
from diptych.recipes.objectives.kind import Objectives

Share = Annotated[float, Field(ge=0, le=1)]


class ImageBertObjectives(Objectives):
    """Weights of the four tasks of section 4.3; 0: off. The paper adds them up."""

    kind: Literal["image-bert"] = "image-bert"
    words: NonNegativeFloat = 1.0  # MLM
    region_classes: NonNegativeFloat = 1.0  # MOC
    region_features: NonNegativeFloat = 1.0  # MRFR ("w MRFR loss", Table 4)
    matching: NonNegativeFloat = 1.0  # ITM
    rate: Share = 0.15  # of the words
    region_rate: Share = 0.15
    region_hidden: Share = 0.9  # of the chosen regions; the others keep their feature
    distance: Literal["sum", "mean"] = "sum"  # of MRFR, over the numbers of a feature
    broken: Share = 0.5  # of the pairs; the paper does not say
    negatives: Literal["captions", "pictures", "both"] = "both"
    only_matched: bool = True  # "conditional mask": of a broken pair nothing is asked

    @model_validator(mode="after")
    def _some(self) -> ImageBertObjectives:
        if not (self.words or self.region_classes or self.region_features or self.matching):
            raise ValueError("words, region_classes, region_features and matching are all 0: nothing to train")
        return self

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """What swaps comes first, or a caption would be hidden for one picture and guessed for another."""
        matched = self.only_matched
        weighed: list[tuple[Objective, float]] = [
            (ImageTextMatching(self.broken, self.negatives), self.matching),
            (
                MaskedLanguage(
                    vocabulary,
                    rate=self.rate,
                    attention=((BIDIRECTIONAL, 1.0),),
                    only_matched=matched,
                    hides_end=False,
                ),
                self.words,
            ),
            (MaskedRegionClass(self.region_rate, self.region_hidden, only_matched=matched), self.region_classes),
            (
                MaskedRegionFeature(self.region_rate, self.region_hidden, self.distance, only_matched=matched),
                self.region_features,
            ),
        ]
        used = [(objective, weight) for objective, weight in weighed if weight]
        weights = {objective.name: weight for objective, weight in used}
        return Schedule(((OneForward(tuple(objective for objective, _ in used), weights), 1.0),))
