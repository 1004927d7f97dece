"""XGPT's: captions, fragments, damaged sentences and regions, written in turn; on text alone, MLM and MASS."""

from __future__ import annotations

from typing import Literal

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
    """The weights of the tasks' losses (the paper's lambdas); a task of weight 0 has no turn.

    The tasks take turns in the order below, a batch and an optimizer step each: what the paper calls an iteration is as
    many steps as there are tasks.
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
    """Weight of masked words of data.text, without a picture; 0: off."""
    text_fragments: NonNegativeFloat = 0.0
    """Weight of MASS on data.text, without a picture; 0: off."""
    loss_per: LossPer = "item"
    """item: a loss of words is the mean over all that are asked; pair: summed in a sentence, as in Eqs. 2 to 4."""
    fragment_share: PositiveShare = 0.5
    """Share of the words that a fragment takes."""
    fragment_context: bool = False
    """Whether the decoder of a fragment reads the words before it too."""
    span_share: PositiveShare = 0.3
    """Share of the words that IDA hides."""
    span_length: PositiveFloat = 3.0
    """Mean length of IDA's spans, of a Poisson distribution."""
    span_at_least: PositiveInt = 1
    """Words of a span at least; of short captions a third have one word, for which both kinds of masks are the same."""
    masks: Literal["single", "multi"] = "single"
    """[MASK]s of a span: a single one, or one for each word (Table 4)."""
    grounded: bool = True
    """Whether IDA's words are read as the regions that they attend to."""
    region_error: Literal["mean", "sum"] = "mean"
    """Whether TIFG takes the mean over the numbers of a feature or their sum, which drowns the other losses."""
    word_share: PositiveShare = 0.15
    """Share of the words of data.text that are hidden."""
    label_smoothing: PartialShare = 0.0
    """Label smoothing of the words."""

    @model_validator(mode="after")
    def _fits(self) -> XgptObjectives:
        if not any(weight for _, weight in self.weights()):
            names = ", ".join(name for name, _ in self.weights())
            raise ValueError(f"{names} are all 0, so there is nothing to train")
        return self

    @property
    def of_pictures(self) -> list[str]:
        """The tasks among them that read a picture."""
        return [name for name, weight in self.weights() if weight and not name.startswith("text_")]

    def weights(self) -> list[tuple[str, float]]:
        names = ("captions", "fragments", "denoising", "regions", "text_words", "text_fragments")
        return [(name, getattr(self, name)) for name in names]

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        updates = []
        for name, weight in self.weights():
            if weight:
                objective = self._objective(name, vocabulary)
                objective = objective if name == "regions" else per(self.loss_per, objective)  # Eq. 5 has its own 1/N
                updates.append((OneForward((objective,), {objective.name: weight}), 1.0))
        return Schedule(tuple(updates), order="in turn" if len(updates) > 1 else "together")

    def _objective(self, name: str, vocabulary: Vocabulary) -> Objective:
        smoothing = self.label_smoothing
        match name:
            case "captions":
                return GenerateText(vocabulary, reads="nothing", label_smoothing=smoothing)
            case "fragments":
                return GenerateFragment(
                    vocabulary, self.fragment_share, context=self.fragment_context, label_smoothing=smoothing
                )
            case "denoising":
                return Denoise(
                    vocabulary,
                    self.span_share,
                    self.span_length,
                    self.span_at_least,
                    self.masks,
                    self.grounded,
                    label_smoothing=smoothing,
                )
            case "regions":
                return GenerateRegions(vocabulary, self.region_error)
            case "text_words":
                return MaskedLanguage(
                    vocabulary,
                    rate=self.word_share,
                    attention=((BIDIRECTIONAL, 1.0),),
                    hides_end=False,
                    alone=True,
                    label_smoothing=smoothing,
                )
            case _:
                return GenerateFragment(
                    vocabulary, self.fragment_share, alone=True, label_smoothing=smoothing, name="text_fragment"
                )
