"""VL-BERT's: words told with visual clues, regions told with words, and (v1) whether the two belong together."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from diptych.core import BIDIRECTIONAL, Vocabulary
from diptych.models.visual import Source
from diptych.objectives import ImageTextMatching, MaskedLanguage, MaskedRegionClass, Schedule, SeenRegionClass
from diptych.objectives.words import Scheme
from diptych.recipes.objectives.kind import SeenClasses, weighed

Share = Annotated[float, Field(ge=0, le=1)]
_SCHEMES: dict[Source, Scheme] = {"paper": (1.0, 0.0, 0.0), "official": (0.8, 0.1, 0.1)}


class VLBertObjectives(SeenClasses):
    """Weights of the tasks of section 3.3; 0: off. All are added up."""

    kind: Literal["vl-bert"] = "vl-bert"
    relation: NonNegativeFloat = 1.0  # v1; off in the ICLR version and the code
    words: NonNegativeFloat = 1.0
    text_alone: NonNegativeFloat = 0.0  # words of data.text by themselves; ICLR version and code: 1
    region_classes: NonNegativeFloat = 1.0
    masking: Source = "paper"  # a chosen piece becomes [MASK]; or whole words, 80/10/10
    rate: Share = 0.15  # of the words
    region_rate: Share = 0.15
    region_hidden: Share = 0.9  # of the chosen regions
    region_labels: Literal["hard", "soft"] = "hard"  # the detector's best class, or (the code) all its probabilities
    label_sum_within: NonNegativeFloat | None = None  # of 1; other regions are not asked (the code: 0.1)
    means: Literal["all", "samples"] = "all"  # over all that is asked, or first by sample
    broken: Share = 0.5  # of the pairs, where relation is on
    only_matched: bool = True  # of a broken pair nothing is asked: the text says nothing of that picture

    @model_validator(mode="after")
    def _some(self) -> VLBertObjectives:
        if not (self.relation or self.words or self.text_alone or self.region_classes or self.seen_classes):
            raise ValueError("relation, words, text_alone, region_classes and seen_classes are all 0: nothing to train")
        return self

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """What swaps comes first, or a caption would be hidden for one picture and guessed for another."""
        words = MaskedLanguage(
            vocabulary,
            rate=self.rate,
            scheme=_SCHEMES[self.masking],
            attention=((BIDIRECTIONAL, 1.0),),
            of="pictured" if self.text_alone else "all",
            only_matched=self.only_matched,
            hides_end=False,
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
