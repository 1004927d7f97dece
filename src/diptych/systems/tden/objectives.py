"""TDEN's objectives: predict words and regions, generate sentences, match images and texts, in one or two passes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import NonNegativeFloat, model_validator

from diptych.core import Objective, Vocabulary
from diptych.core.shares import Share, Source
from diptych.objectives import (
    GenerateText,
    ImageTextMatching,
    MaskedRegionClass,
    OneForward,
    Schedule,
    ScheduledSampling,
    Similarity,
    two_pass_c,
)
from diptych.objectives.settings import SCHEMES, MaskedWords

OVERLAP = 0.4  # regions overlap if their IoU is above this (func_pretrain.py:44)


class TdenObjectives(MaskedWords):
    """Settings of the four objectives. Each can be switched off (Table 2).

    The value `official` follows the released code.
    """

    without_classes = "regions=false"
    kind: Literal["tden"] = "tden"
    """Kind of objectives."""
    words: bool = True
    """Whether masked words are predicted (MLM)."""
    regions: bool = True
    """Whether masked regions' classes are predicted (MOC)."""
    writing: bool = True
    """Whether masked sentences are generated (MSG)."""
    matching: Literal["paper", "official", "older"] | None = "paper"
    """Form of image-sentence matching (ISM); null: off."""
    matching_on: Literal["unimodal", "cross"] = "unimodal"
    """unimodal: ISM compares vectors of the two encoders; cross: it reads the cross-modal encoder (Table 2, row 4)."""
    margin: NonNegativeFloat | None = None
    """Margin of ISM; null: the margin of the form in `matching`."""
    equal_texts: Literal["papers", "content"] = "papers"
    """Whether a copy of the right text or image counts as mismatched (papers), or as right (content)."""
    two_pass: Literal["A", "B", "C"] | None = "A"
    """Scheduled sampling in two passes: Two-Pass-A, B or C; null: one pass."""
    sampling: Source = "paper"
    """paper: words are sampled, and both passes make one step; official: the likeliest words, and one step per pass."""
    msg_input: Source = "paper"
    """What the decoder reads: the original sentence (paper), or the sentence with its [MASK]s (official)."""
    region_suppression: Source = "paper"
    """paper: only chosen regions are hidden; official: also all regions that overlap a chosen one."""
    masking: Source = "paper"
    """paper: a chosen word piece becomes [MASK]; official: [MASK], a random piece or no change (80/10/10)."""
    region_rate: Share = 0.15
    """Share of the regions that are hidden."""
    region_hidden: Share = 1.0
    """Share of the chosen regions that are hidden (the code: 0.9); the other chosen regions keep their feature."""

    @model_validator(mode="after")
    def _fits(self) -> TdenObjectives:
        if not (self.words or self.regions or self.writing or self.matching):
            raise ValueError("`words`, `regions`, `writing` and `matching` are all off; turn one on")
        if self.two_pass and not (self.words and self.writing):
            raise ValueError(f"two_pass={self.two_pass} needs words=true and writing=true; set both, or two_pass=null")
        if self.matching_on == "cross" and self.two_pass:
            raise ValueError(f"two_pass={self.two_pass} cannot be used with matching_on=cross; set two_pass=null")
        return self

    @property
    def reads_pairs(self) -> bool:
        return self.matching is not None and self.matching_on == "cross"

    @property
    def texts_equal_by(self) -> Literal["papers", "content"]:
        return self.equal_texts

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        read = self._read(vocabulary)
        across = self.reads_pairs
        source: Literal["hidden", "words"] = "hidden" if self.msg_input == "official" else "words"
        write = GenerateText(vocabulary, source=source, only_matched=across)
        if across:
            objectives = (ImageTextMatching(negatives="captions"), *read, *([write] if self.writing else []))
            return Schedule(((OneForward(objectives), 1.0),))
        match = Similarity(self.matching, self.margin, self.equal_texts) if self.matching is not None else None
        if self.two_pass is None:
            objectives = (*read, *([write] if self.writing else []), *([match] if match else []))
            return Schedule(((OneForward(objectives), 1.0),))
        parts: dict[str, Any] = {"vocabulary": vocabulary, "read": read, "write": write, "match": match}
        if self.two_pass == "C":
            return Schedule(two_pass_c(**parts, form=self.sampling), order="sampled")
        return Schedule(((ScheduledSampling(**parts, scheme=self.two_pass, form=self.sampling), 1.0),))

    def _read(self, vocabulary: Vocabulary) -> tuple[Objective, ...]:
        across = self.reads_pairs
        words = self.masked_words(vocabulary, scheme=SCHEMES[self.masking], only_matched=across)
        overlap = OVERLAP if self.region_suppression == "official" else None
        regions = MaskedRegionClass(
            self.region_rate, self.region_hidden, labels="divergence", overlap=overlap, only_matched=across
        )
        return (*([words] if self.words else []), *([regions] if self.regions else []))
