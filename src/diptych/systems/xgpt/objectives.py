"""XGPT's objectives: generate captions, fragments, damaged sentences and regions; MLM and MASS on text alone."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from diptych.core import BIDIRECTIONAL, Objective, Vocabulary
from diptych.core.shares import PartialShare, PositiveShare
from diptych.objectives import (
    Denoise,
    GenerateFragment,
    GenerateRegions,
    GenerateText,
    MaskedLanguage,
    OneForward,
    Schedule,
)
from diptych.objectives.settings import LossPer, Objectives, per


class XgptObjectives(Objectives):
    """Settings of the pre-training tasks, with the weights of their losses (the paper's lambdas).

    Tasks with a weight above 0 take turns, in the order of the fields. Each turn has its own batch and optimizer step.
    So with N tasks, one iteration of the paper is N steps here.
    """

    kind: Literal["xgpt"] = "xgpt"
    """Kind of objectives."""
    captions: NonNegativeFloat = 1.0
    """Weight of image captioning (IC); 0: off."""
    fragments: NonNegativeFloat = 1.0
    """Weight of image-conditioned masked language modelling (IMLM); 0: off."""
    denoising: NonNegativeFloat = 1.0
    """Weight of image-conditioned denoising (IDA); 0: off."""
    regions: NonNegativeFloat = 1.0
    """Weight of text-conditioned image feature generation (TIFG); 0: off."""
    text_words: NonNegativeFloat = 0.0
    """Weight of masked words of data.text, without an image; 0: off."""
    text_fragments: NonNegativeFloat = 0.0
    """Weight of MASS on data.text, without an image; 0: off."""
    loss_per: LossPer = "item"
    """item: word losses are averaged over all predictions; pair: summed over each sentence, as in Eqs. 2 to 4."""
    fragment_share: PositiveShare = 0.5
    """Length of a fragment, as a share of the words."""
    fragment_context: bool = False
    """Whether the decoder also reads the words before the fragment."""
    span_share: PositiveShare = 0.3
    """Share of the words that IDA hides."""
    span_length: PositiveFloat = 3.0
    """Mean of the Poisson distribution of the lengths of IDA's spans."""
    span_at_least: PositiveInt = 1
    """Minimum number of words of a span. With 1, a third of the spans of short captions have one word."""
    masks: Literal["single", "multi"] = "single"
    """single: one [MASK] per span; multi: one [MASK] per word (Table 4)."""
    grounded: bool = True
    """Whether IDA's words are replaced by the regions that they attend to."""
    region_error: Literal["mean", "sum"] = "mean"
    """Whether TIFG's loss is the mean over the values of a feature, or their sum, which outweighs the other losses."""
    word_share: PositiveShare = 0.15
    """Share of the words of data.text that are hidden."""
    label_smoothing: PartialShare = 0.0
    """Label smoothing of the words."""

    @model_validator(mode="after")
    def _fits(self) -> XgptObjectives:
        if not any(self.weights().values()):
            raise ValueError(f"{', '.join(self.weights())} are all 0: nothing is trained; set one above 0")
        return self

    @property
    def of_pictures(self) -> list[str]:
        """Return the tasks that read images and have a weight above 0."""
        return [name for name, weight in self.weights().items() if weight and not name.startswith("text_")]

    def weights(self) -> dict[str, float]:
        """Return the weight of each task, in the order in which they take turns."""
        names = ("captions", "fragments", "denoising", "regions", "text_words", "text_fragments")
        return {name: getattr(self, name) for name in names}

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """Return the schedule: one update for each task with a weight above 0, in turn."""
        smoothing: dict[str, Any] = {"label_smoothing": self.label_smoothing}
        spans = (self.span_share, self.span_length, self.span_at_least)
        share, both_ways = self.fragment_share, ((BIDIRECTIONAL, 1.0),)
        masked: dict[str, Any] = {"rate": self.word_share, "attention": both_ways, "hides_end": False, "alone": True}
        objectives: dict[str, Objective] = {
            "captions": GenerateText(vocabulary, reads="nothing", **smoothing),
            "fragments": GenerateFragment(vocabulary, share, context=self.fragment_context, **smoothing),
            "denoising": Denoise(vocabulary, *spans, self.masks, self.grounded, **smoothing),
            "regions": GenerateRegions(vocabulary, self.region_error),
            "text_words": MaskedLanguage(vocabulary, **masked, **smoothing),
            "text_fragments": GenerateFragment(vocabulary, share, alone=True, name="text_fragment", **smoothing),
        }
        updates = []
        for name, weight in self.weights().items():
            if weight:
                own = objectives[name]
                objective = own if name == "regions" else per(self.loss_per, own)  # Eq. 5 has a mean already
                updates.append((OneForward((objective,), {own.name: weight}), 1.0))
        return Schedule(tuple(updates), order="in turn" if len(updates) > 1 else "together")
