"""Scheduled sampling: a second pass reads the model's own predictions instead of [MASK] (TDEN, Fig. 3)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import IGNORE, Batch, Capability, Losses, Objective, Partners, Places, Sample, Vocabulary
from diptych.core.randomness import pick, uniform
from diptych.core.states import StateRequest, States
from diptych.objectives.updates import OneForward, with_request
from diptych.runtime.errors import RecipeError

Scheme = Literal["A", "B", "C"]
GUESSED = "guessed"  # key of `Batch.places`: positions of words that the first pass predicts for the second


@dataclass(frozen=True)
class ScheduledSampling:
    """TDEN's scheduled sampling. As at test time, the second of two passes reads predicted words instead of [MASK]s.

    A   the encoder reads words that the encoder predicted; the decoder reads words that the decoder predicted
    B   the encoder reads words that the decoder predicted, and vice versa
    C   half of B: the first pass runs only `first` (encoder or decoder). The second pass runs only the other one, which
        reads the predicted words. A schedule draws `first` (`two_pass_c`), so that all processes agree.

    paper      predicted words are sampled. The two passes make one step together, on the sum of their losses (Eqs. 1
               to 3). The second pass reuses the object encoder's output
    official   the most probable words are used, with a step after each pass (tden_pretrainer.py:62). The released code
               has only A.

    `match` (ISM) is computed in the first pass only. Like TDEN, the model must have the methods `read_regions` and
    `forward(batch, objects, cross)`. It must read a target in addition to the text.
    """

    vocabulary: Vocabulary
    read: Sequence[Objective]  # objectives of the encoder: MLM, MOC
    write: Objective  # objective of the decoder: MSG
    match: Objective | None = None
    scheme: Scheme = "A"
    form: Literal["paper", "official"] = "paper"
    first: Literal["encoder", "decoder"] = "encoder"

    needs: ClassVar[frozenset[Capability]] = frozenset({"two passes"})

    def __post_init__(self) -> None:
        OneForward(self.objectives)  # raises RecipeError for a repeated name or a wrong order of the objectives
        if self.form == "official" and self.scheme != "A":
            raise RecipeError(f"the authors' code has only Two-Pass-A, not {self.scheme}; set sampling=paper")

    @property
    def objectives(self) -> Sequence[Objective]:
        return (*self.read, self.write, *([self.match] if self.match is not None else []))

    @property
    def weights(self) -> Mapping[str, float]:
        return {}

    def prepare(self, samples: list[Sample], rng: Random, partners: Partners | None = None) -> list[Sample]:
        return OneForward(self.objectives).prepare(samples, rng, partners)

    def counts(self, batch: Batch) -> Losses:
        counts = {objective.name: objective.count(batch) for objective in self.objectives}
        if self.scheme != "C" and self.form == "paper":
            counts |= {_second(o): counts[o.name] for o in (*self.read, self.write)}
        return counts

    def places(self, batch: Batch) -> dict[str, Places]:
        return OneForward(self.objectives).places(batch) | {GUESSED: batch.where(GUESSED, _hidden_words)}

    def losses(self, model: Any, batch: Batch) -> Iterator[Losses]:
        if self.scheme == "C":
            yield self._half(model, batch)
            return
        objects = model.read_regions(batch) if self.form == "paper" else None
        states = model(with_request(batch, self.objectives, _guessed(batch)), objects)
        first = self._losses(model, states, batch, self.objectives)
        by_encoder = self.guess(model, states.text, batch)
        by_decoder = self.guess(model, states.target, batch, 1)
        del states
        read, written = (by_encoder, by_decoder) if self.scheme == "A" else (by_decoder, by_encoder)
        again = replace(batch, text=read, target=self._shifted(written))
        objectives = (*self.read, self.write)
        if self.form == "official":
            yield first  # here the trainer makes an optimizer step, and the first graph is freed
            yield self._losses(model, model(with_request(again, objectives)), again, objectives)
            return
        second = self._losses(model, model(with_request(again, objectives), objects), again, objectives)
        yield first | {_second(o): second[o.name] for o in objectives}

    def _half(self, model: Any, batch: Batch) -> Losses:
        """Two-Pass-C (Eq. 3): each objective is computed in only one of the two passes."""
        objects = model.read_regions(batch)
        match = [self.match] if self.match is not None else []
        if self.first == "encoder":
            before, after = [*match, *self.read], [self.write]
            states = model(with_request(replace(batch, target=None), before, _guessed(batch)), objects)
            target = self._shifted(self.guess(model, states.text, batch))
            # The encoder has already read the text, so the text is left out.
            again = replace(batch.without_text(), target=target)
        else:
            before, after = [*match, self.write], [*self.read]
            states = model(with_request(batch, before, _guessed(batch)), objects, cross=False)
            again = replace(batch, text=self.guess(model, states.target, batch, 1), target=None)
        first = self._losses(model, states, batch, before)
        return first | self._losses(model, model(with_request(again, after), objects), batch, after)

    def _losses(self, model: Any, states: States, batch: Batch, objectives: Sequence[Objective]) -> Losses:
        return {objective.name: objective.loss(model, states, batch) for objective in objectives}

    @torch.no_grad()
    def guess(self, model: Any, states: Tensor, batch: Batch, draw: int = 0) -> Int[Tensor, "B T"]:
        """Return the text in which every masked word is replaced by a prediction of the first pass.

        `states` at position t predict word t. They are the states of the encoder, or of the decoder (whose input is
        shifted). `draw` is different for encoder and decoder, so that their random numbers differ.
        """
        places = batch.where(GUESSED, _hidden_words)
        scores = model.heads["word"](states[places]).float()
        if self.form == "official":
            guessed = scores.argmax(-1)
        elif batch.seeds is not None:  # a seed per sample: words do not depend on the number of processes
            row, place = places
            guessed = pick(scores.softmax(-1), uniform(batch.seeds[row], place, draw))
        else:
            guessed = torch.multinomial(scores.softmax(-1), 1)[:, 0] if len(scores) else scores.new_zeros(0).long()
        return batch.text.index_put(places, guessed)

    def _shifted(self, words: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
        return torch.cat([torch.full_like(words[:, :1], self.vocabulary.cls), words[:, :-1]], 1)


def _hidden_words(batch: Batch) -> StateRequest:
    return StateRequest(text=batch.text_labels != IGNORE)


def two_pass_c(**parts: Any) -> tuple[tuple[ScheduledSampling, float], ...]:
    """Return both orders of Two-Pass-C with weight 0.5, for a sampled schedule (alpha in Eq. 3)."""
    return tuple((ScheduledSampling(scheme="C", first=first, **parts), 0.5) for first in ("encoder", "decoder"))


def _guessed(batch: Batch) -> StateRequest:
    """Request the states that predict the words for the second pass."""
    hidden = batch.text_labels != IGNORE
    return StateRequest(text=hidden, target=hidden)


def _second(objective: Objective) -> str:
    return f"{objective.name}/2"
