"""TDEN's: words and regions guessed, sentences written, pictures and texts matched; in one pass or two."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, model_validator

from diptych.core import BIDIRECTIONAL, Objective, Vocabulary
from diptych.objectives import (
    GenerateText,
    ImageTextMatching,
    MaskedLanguage,
    MaskedRegionClass,
    OneForward,
    Schedule,
    ScheduledSampling,
    Similarity,
    two_pass_c,
)
from diptych.recipes.objectives.kind import Objectives

Share = Annotated[float, Field(ge=0, le=1)]
Source = Literal["paper", "official"]
OVERLAP = 0.4  # IoU, func_pretrain.py:44


class TdenObjectives(Objectives):
    """Each of the four can be switched off (Table 2). `paper` against `official` is the table of fidelity.md."""

    kind: Literal["tden"] = "tden"
    words: bool = True  # MLM
    regions: bool = True  # MOC
    writing: bool = True  # MSG
    matching: Literal["paper", "official", "older"] | None = "paper"  # ISM
    matching_on: Literal["unimodal", "cross"] = "unimodal"  # cross: Table 2, row 4, with swapped texts
    margin: NonNegativeFloat | None = None  # of ISM; None: that of its form
    two_pass: Literal["A", "B", "C"] | None = "A"
    sampling: Source = "paper"  # words drawn and one step; or the likeliest words and two steps
    msg_input: Source = "paper"  # the words of the sentence; or the sentence with its [MASK]s
    region_suppression: Source = "paper"  # none; or all regions that overlap a chosen one are hidden
    rate: Share = 0.15  # of the words
    region_rate: Share = 0.15
    region_hidden: Share = 0.9  # of the chosen regions

    @model_validator(mode="after")
    def _fits(self) -> TdenObjectives:
        if not (self.words or self.regions or self.writing or self.matching):
            raise ValueError("words, regions, writing and matching are all off, so there is nothing to train")
        if self.two_pass and not (self.words and self.writing):
            raise ValueError(
                f"two_pass={self.two_pass} puts guesses of words and of writing where words are masked: it needs "
                "words=true and writing=true, or two_pass=null"
            )
        if self.matching_on == "cross" and self.two_pass:
            raise ValueError(
                f"two_pass={self.two_pass} with matching_on=cross: the paper has no such row; set two_pass=null"
            )
        return self

    @property
    def _across(self) -> bool:
        return self.matching is not None and self.matching_on == "cross"

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        read = self._read(vocabulary)
        across = self._across
        source: Literal["hidden", "words"] = "hidden" if self.msg_input == "official" else "words"
        write = GenerateText(vocabulary, source=source, only_matched=across)
        if across:
            objectives = (ImageTextMatching(negatives="captions"), *read, *([write] if self.writing else []))
            return Schedule(((OneForward(objectives), 1.0),))
        match = Similarity(self.matching, self.margin) if self.matching is not None else None
        if self.two_pass is None:
            objectives = (*read, *([write] if self.writing else []), *([match] if match else []))
            return Schedule(((OneForward(objectives), 1.0),))
        parts: dict[str, Any] = {"vocabulary": vocabulary, "read": read, "write": write, "match": match}
        if self.two_pass == "C":
            return Schedule(two_pass_c(**parts, form=self.sampling), order="sampled")
        return Schedule(((ScheduledSampling(**parts, scheme=self.two_pass, form=self.sampling), 1.0),))

    def _read(self, vocabulary: Vocabulary) -> tuple[Objective, ...]:
        across = self._across
        words = MaskedLanguage(
            vocabulary, rate=self.rate, attention=((BIDIRECTIONAL, 1.0),), only_matched=across, hides_end=False
        )
        regions = MaskedRegionClass(
            rate=self.region_rate,
            hidden=self.region_hidden,
            labels="divergence",
            overlap=OVERLAP if self.region_suppression == "official" else None,
            only_matched=across,
        )
        return (*([words] if self.words else []), *([regions] if self.regions else []))
