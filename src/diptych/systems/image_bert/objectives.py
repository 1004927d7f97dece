"""ImageBERT's objectives: image-text matching, hidden words and hidden regions, all predicted in one forward pass."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, model_validator

from diptych.core import Vocabulary
from diptych.core.shares import Share
from diptych.objectives import ImageTextMatching, MaskedRegionClass, MaskedRegionFeature, Schedule
from diptych.objectives.settings import LossPer, MaskedWords, per, weighed


class ImageBertObjectives(MaskedWords):
    """Settings of the four pre-training tasks of section 4.3. The loss is the weighted sum of their losses."""

    without_classes = "region_classes=0"
    kind: Literal["image-bert"] = "image-bert"
    """Kind of objectives."""
    words: NonNegativeFloat = 1.0
    """Weight of masked language modelling (MLM); 0: off."""
    region_classes: NonNegativeFloat = 1.0
    """Weight of masked object classification (MOC); 0: off."""
    region_features: NonNegativeFloat = 1.0
    """Weight of masked region feature regression (MRFR); 0: off."""
    matching: NonNegativeFloat = 1.0
    """Weight of image-text matching (ITM); 0: off."""
    region_rate: Share = 0.15
    """Share of the regions that are hidden."""
    region_hidden: Share = 0.9
    """Share of the chosen regions that are hidden; the other chosen regions keep their feature."""
    distance: Literal["mean", "sum"] = "mean"
    """Whether MRFR's loss is the mean over the values of a feature, or their sum, which outweighs the other losses."""
    loss_per: LossPer = "item"
    """item: masked losses are averaged over all predictions; pair: summed over each pair, as in the formulas."""
    wrong_pairs: Literal["added", "instead"] = "added"
    """added: for each pair, mismatched pairs are added; instead: they replace a share of the pairs (`broken`)."""
    broken: Share | None = None
    """Share of the pairs that are mismatched with wrong_pairs=instead; null: half."""
    negatives: Literal["captions", "pictures", "both"] = "both"
    """What a mismatched pair takes from another pair: captions, pictures, or half of each."""
    only_matched: bool = True
    """Whether mismatched pairs are used only for matching, and not for the masked losses."""

    @model_validator(mode="after")
    def _some(self) -> ImageBertObjectives:
        if not (self.words or self.region_classes or self.region_features or self.matching):
            raise ValueError("`words`, `region_classes`, `region_features` and `matching` are all 0; set one above 0")
        if self.wrong_pairs == "added" and self.broken is not None:
            raise ValueError("`broken` needs wrong_pairs=instead; set this too, or leave out `broken`")
        return self

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """Return the schedule: one forward pass per step.

        Pairs are mismatched before words and regions are hidden, so that both belong to the same image.
        """
        matched, broken = self.only_matched, 0.5 if self.broken is None else self.broken
        words = self.masked_words(vocabulary, only_matched=matched)
        classes = MaskedRegionClass(self.region_rate, self.region_hidden, only_matched=matched)
        features = MaskedRegionFeature(self.region_rate, self.region_hidden, self.distance, only_matched=matched)
        return weighed(
            (ImageTextMatching(broken, self.negatives, self.wrong_pairs == "added"), self.matching),
            (per(self.loss_per, words), self.words),
            (per(self.loss_per, classes), self.region_classes),
            (per(self.loss_per, features), self.region_features),
        )
