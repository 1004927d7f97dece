"""Self-critical training (SCST): raise the probability of sampled captions whose reward exceeds a baseline's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from jaxtyping import Float
from pydantic import PositiveInt, model_validator
from torch import Tensor

from diptych.core import Batch, Vocabulary
from diptych.models.decoding import DecodingOptions, decode
from diptych.objectives import GenerateText, MaskedQueries, Schedule, SelfCritical
from diptych.objectives.self_critical import Caption, Draw, Reward
from diptych.objectives.settings import Objectives


class SelfCriticalObjectives(Objectives):
    """Self-critical training with CIDEr-D as the reward. docs/fidelity.md compares `paper` and `official`."""

    improves = True
    kind: Literal["self-critical"] = "self-critical"
    """Kind of objectives."""
    writes: Literal["queries", "decoder"]
    """How the model scores all words of a caption in one pass: with [MASK] queries, or with its decoder."""
    baseline: Literal["greedy", "mean", "beam"] = "greedy"
    """Baseline of the reward: the greedy caption, the image's other sampled captions (mean), or a beam search."""
    samples: PositiveInt = 1
    """Captions sampled for each image."""
    beams: PositiveInt = 5
    """Beam size of baseline=beam."""
    # paper: document frequencies are counted over the training set.
    # official (Unified VLP's code): references are word pieces, and document frequencies are counted over the batch.
    references: Literal["paper", "official"] = "paper"
    """References of the reward: all captions of the image (paper), or only the sample's caption (official)."""
    counts_end: bool = True
    """Count the end of a caption as a word in the reward's n-grams; otherwise captions learn to break off."""
    dropout: bool = False
    """Keep dropout on while captions are sampled and scored."""

    @model_validator(mode="after")
    def _agrees(self) -> SelfCriticalObjectives:
        if self.baseline == "mean" and self.samples < 2:
            raise ValueError(
                "baseline=mean is the mean of the image's other captions, but samples=1 has no others; set samples=2"
            )
        if not self.counts_end and self.references == "official":
            raise ValueError(
                "references=official counts the end of a caption, as the authors' code does; with counts_end=false, "
                "set references=paper"
            )
        return self

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        """Return a schedule that shows what the model must provide.

        This schedule cannot train, because it has no reference captions.
        """
        return self.rewarded(vocabulary, _Unread(), DecodingOptions().max_words)

    def rewarded(self, vocabulary: Vocabulary, reward: Reward, max_words: int) -> Schedule:
        """Return the schedule that trains with `reward`. Sampled captions have at most `max_words` tokens."""
        beams = {"greedy": 1, "beam": self.beams, "mean": None}[self.baseline]
        sampling = DecodingOptions(sample=True, captions=self.samples, max_words=max_words)
        update = SelfCritical(
            ask=MaskedQueries(vocabulary) if self.writes == "queries" else GenerateText(vocabulary, reads="nothing"),
            reward=reward,
            draw=_decoder(sampling),
            rival=None if beams is None else _decoder(DecodingOptions(max_words=max_words, captions=1, beams=beams)),
            samples=self.samples,
            dropout=self.dropout,
        )
        return Schedule(((update, 1.0),))


def _decoder(options: DecodingOptions) -> Draw:
    def draw(model: Any, batch: Batch) -> list[list[Caption]]:
        end = model.vocabulary.sep
        return [
            [[*text.tokens, end] if len(text.tokens) < options.max_words else text.tokens for text in texts]
            for texts in decode(model, batch, options)
        ]

    return draw


class _Unread:
    """A placeholder for the reward. Calling it raises AssertionError."""

    def __call__(self, batch: Batch, captions: Sequence[Sequence[Caption]]) -> Float[Tensor, "B K"]:
        raise AssertionError("the schedule was made without reference captions, so it cannot train")

    def spell(self, caption: Caption) -> str:
        return str(caption)
