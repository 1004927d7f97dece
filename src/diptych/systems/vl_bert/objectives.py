"""VL-BERT's objectives: predict words from text and image, predict region classes, and in v1, image-text matching."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import NonNegativeFloat, model_validator

from diptych.core import Vocabulary
from diptych.core.shares import Share, Source
from diptych.objectives import ImageTextMatching, MaskedRegionClass, Schedule, SeenRegionClass
from diptych.objectives.settings import SCHEMES, MaskedWords, SeenClasses, weighed


class VLBertObjectives(MaskedWords, SeenClasses):
    """Settings of the pre-training tasks of section 3.3. The loss is the weighted sum of their losses."""

    without_classes = "region_classes=0"
    kind: Literal["vl-bert"] = "vl-bert"
    """Kind of objectives."""
    relation: NonNegativeFloat = 1.0
    """Weight of the sentence-image relation; 0: off, as in the ICLR version and the code."""
    words: NonNegativeFloat = 1.0
    """Weight of masked words; 0: off."""
    text_alone: NonNegativeFloat = 0.0
    """Weight of masked words in texts of data.text; 0: off."""
    region_classes: NonNegativeFloat = 1.0
    """Weight of masked region classes; 0: off."""
    masking: Source = "paper"
    """paper: a chosen word piece becomes [MASK]; official: whole words become [MASK], random or stay (80/10/10)."""
    region_rate: Share = 0.15
    """Share of the regions that are hidden."""
    region_hidden: Share = 1.0
    """Share of the chosen regions that are hidden (the code: 0.9); the other chosen regions keep their feature."""
    region_labels: Literal["hard", "soft"] = "hard"
    """hard: the detector's most probable class; soft (the code): all class probabilities."""
    label_sum_within: NonNegativeFloat | None = None
    """Regions are not predicted if their probabilities' sum differs more from 1 (the code: 0.1); null: no limit."""
    means: Literal["all", "samples"] = "all"
    """all: losses are averaged over all predictions; samples: over each sample's predictions, then over samples."""
    broken: Share = 0.5
    """Share of the pairs that are mismatched if relation is on."""
    only_matched: bool = True
    """Whether mismatched pairs are used only for the relation, and not for the masked losses."""

    @property
    def needs_text(self) -> bool:
        return self.text_alone > 0

    @model_validator(mode="after")
    def _some(self) -> VLBertObjectives:
        if not (self.relation or self.words or self.text_alone or self.region_classes or self.seen_classes):
            raise ValueError("set one above 0: `relation`, `words`, `text_alone`, `region_classes` or `seen_classes`")
        return self

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """Return the schedule: one forward pass per step.

        Some texts are exchanged first, then words and regions are hidden. So all losses read the same pairs.
        """
        words = self.masked_words(
            vocabulary,
            scheme=SCHEMES[self.masking],
            of="pictured" if self.text_alone else "all",
            only_matched=self.only_matched,
            whole_words=self.masking == "official",
            by_sample=self.means == "samples",
        )
        regions = MaskedRegionClass(
            self.region_rate,
            self.region_hidden,
            labels=self.region_labels,
            within=self.label_sum_within,
            only_matched=self.only_matched,
            by_sample=self.means == "samples",
        )
        return weighed(
            (ImageTextMatching(self.broken, "captions"), self.relation),
            (words, self.words),
            (replace(words, of="alone", name="masked_text"), self.text_alone),
            (regions, self.region_classes),
            (SeenRegionClass(), self.seen_classes),
        )
