"""Two passes over a batch: the second reads the model's own guesses where the first read [MASK] (TDEN, Fig. 3)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import (
    IGNORE,
    Batch,
    Capability,
    Losses,
    Objective,
    Partners,
    Places,
    Sample,
    StateRequest,
    States,
    Vocabulary,
)
from diptych.core.randomness import pick, uniform
from diptych.objectives.updates import OneForward, asking
from diptych.runtime.errors import RecipeError

Scheme = Literal["A", "B", "C"]
GUESSED = "guessed"  # in `Batch.places`


@dataclass(frozen=True)
class ScheduledSampling:
    """Pretraining and use differ in the [MASK]s; the second pass has none.

    A   the encoder's input is filled with the encoder's guesses, the decoder's with the decoder's
    B   the other way round
    C   half of B: `first` goes through one of the two, and the other reads what it guessed. A schedule draws which
        (`two_pass_c`), so that all processes agree.

    paper      words are sampled; both passes make one step, the sum of their losses (Eq. 1 to 3); the second reuses
               what the object encoder made of the picture
    official   the likeliest words; a step after each pass (tden_pretrainer.py:62). The released code has A alone.

    `match` (ISM) is asked in the first pass alone. The model has to have `read_regions`, `forward(batch, objects,
    cross)` and a target beside the text, as TDEN has.
    """

    vocabulary: Vocabulary
    read: Sequence[Objective]  # of the encoder: MLM, MOC
    write: Objective  # of the decoder: MSG
    match: Objective | None = None
    scheme: Scheme = "A"
    form: Literal["paper", "official"] = "paper"
    first: Literal["encoder", "decoder"] = "encoder"

    needs: ClassVar[frozenset[Capability]] = frozenset({"two passes"})

    def __post_init__(self) -> None:
        OneForward(self.objectives)  # the same order, names and refusals
        if self.form == "official" and self.scheme != "A":
            raise RecipeError(
                f"the released code has Two-Pass-A alone, and {self.scheme} was asked for; set sampling=paper"
            )

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
        states = model(asking(batch, self.objectives, _guessed(batch)), objects)
        found = self._of(model, states, batch, self.objectives)
        by_encoder = self.guess(model, states.text, batch)
        by_decoder = self.guess(model, states.target, batch, 1)
        del states
        read, written = (by_encoder, by_decoder) if self.scheme == "A" else (by_decoder, by_encoder)
        again = replace(batch, text=read, target=self._shifted(written))
        asked = (*self.read, self.write)
        if self.form == "official":
            yield found  # one step, and what it kept for backward is freed
            yield self._of(model, model(asking(again, asked)), again, asked)
            return
        second = self._of(model, model(asking(again, asked), objects), again, asked)
        yield found | {_second(o): second[o.name] for o in asked}

    def _half(self, model: Any, batch: Batch) -> Losses:
        """Two-Pass-C, Eq. 3: each objective once, with and without [MASK]s in turn."""
        objects = model.read_regions(batch)
        match = [self.match] if self.match is not None else []
        if self.first == "encoder":
            states = model(asking(replace(batch, target=None), [*match, *self.read], _guessed(batch)), objects)
            found = self._of(model, states, batch, [*match, *self.read])
            target = self._shifted(self.guess(model, states.text, batch))
            # The decoder alone: of the text, the encoder has nothing more to read.
            alone = replace(batch.without_text(), target=target)
            return found | self._of(model, model(asking(alone, [self.write]), objects), batch, [self.write])
        states = model(asking(batch, [*match, self.write], _guessed(batch)), objects, cross=False)
        found = self._of(model, states, batch, [*match, self.write])
        again = replace(batch, text=self.guess(model, states.target, batch, 1), target=None)
        return found | self._of(model, model(asking(again, self.read), objects), batch, self.read)

    def _of(self, model: Any, states: States, batch: Batch, objectives: Sequence[Objective]) -> Losses:
        return {objective.name: objective.loss(model, states, batch) for objective in objectives}

    @torch.no_grad()
    def guess(self, model: Any, states: Tensor, batch: Batch, draw: int = 0) -> Int[Tensor, "B T"]:
        """The text with a guess at every word that the first pass asked for. `states` say word t at place t: the
        encoder's of the text, or the decoder's of the target, which reads the word before."""
        asked = batch.where(GUESSED, _hidden_words)
        scores = model.heads["word"](states[asked]).float()
        if self.form == "official":
            guessed = scores.argmax(-1)
        elif batch.seeds is not None:  # a function of the sample and the place: parts and processes guess alike
            row, place = asked
            guessed = pick(scores.softmax(-1), uniform(batch.seeds[row], place, draw))
        else:
            guessed = torch.multinomial(scores.softmax(-1), 1)[:, 0] if len(scores) else scores.new_zeros(0).long()
        return batch.text.index_put(asked, guessed)

    def _shifted(self, words: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
        return torch.cat([torch.full_like(words[:, :1], self.vocabulary.cls), words[:, :-1]], 1)


def _hidden_words(batch: Batch) -> StateRequest:
    return StateRequest(text=batch.text_labels != IGNORE)


def two_pass_c(**parts: Any) -> tuple[tuple[ScheduledSampling, float], ...]:
    """Both paths of Two-Pass-C with even chances, for a schedule that samples: Eq. 3's alpha."""
    return tuple((ScheduledSampling(scheme="C", first=first, **parts), 0.5) for first in ("encoder", "decoder"))


def _guessed(batch: Batch) -> StateRequest:
    """What guesses are made of, beside what is learnt."""
    asked = batch.text_labels != IGNORE
    return StateRequest(text=asked, target=asked)


def _second(objective: Objective) -> str:
    return f"{objective.name}/2"
