"""Captions the model draws itself, rewarded by how good they are (SCST, Rennie et al. 2017, arXiv 1612.00563).

The loss of a drawn caption c is -(reward(c) - baseline) * log p(c), so that what did better than the baseline becomes
likelier. Captions are drawn without a gradient and then written again in one pass, all words at once, which gives their
log-probabilities: what a word costs is a row, and not a step of a decoder that remembers every graph.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from diptych.core import IGNORE, Batch, Capability, Losses, Objective, Partners, Sample, collate
from diptych.objectives.words import word_losses
from diptych.runtime.errors import RecipeError, TrainingError

Caption = list[int]  # with the [SEP] that ends it, where it has ended
Draw = Callable[[Any, Batch], list[list[Caption]]]  # (model, batch) -> the same number of captions for each picture
SHOWN = 3  # captions of a batch that are kept for the log


@runtime_checkable
class Reward(Protocol):
    """How good captions are. Handed in by the recipe, as objectives know no metric."""

    def __call__(self, batch: Batch, captions: Sequence[Sequence[Caption]]) -> Float[Tensor, "B K"]: ...

    def spell(self, caption: Caption) -> str: ...


@dataclass(frozen=True)
class SelfCritical:
    """`rival` draws the captions that a drawn one must beat: the greedy one, or the best of a beam search. Without one
    the baseline is the mean reward of the other captions drawn for the picture (Luo 2020, arXiv 2003.09971).

    ask      arranges a caption so that one pass asks for all its words: MaskedQueries, or GenerateText for decoders
    dropout  draws and rewrites with dropout, each with masks of its own (Unified VLP's code draws with dropout). Off:
             the probabilities are those the words were drawn with, and the gradient is of what will write captions

    Logged beside the loss, without weight in it: the mean reward, the mean distance of a reward from its baseline (what
    there is to learn from: 0 where all captions of a picture are alike), the mean length with its [SEP], and of a rival
    the baseline. The mean of the others is none to log: over a batch it is the mean reward again.
    """

    ask: Objective
    reward: Reward
    draw: Draw
    rival: Draw | None = None
    samples: int = 5  # K, captions drawn a picture
    dropout: bool = False
    examples: list[dict[str, Any]] = field(default_factory=list, compare=False)  # some captions of the last batch

    name = "self_critical"
    needs: ClassVar[frozenset[Capability]] = frozenset({"decode"})

    def __post_init__(self) -> None:
        if self.rival is None and self.samples < 2:
            raise RecipeError(
                "the baseline is the mean of the picture's other captions, and samples=1 draws no others; set "
                "objectives.samples=2 or more, or objectives.baseline=greedy"
            )

    @property
    def objectives(self) -> Sequence[Objective]:
        return (self.ask,)

    @property
    def weights(self) -> Mapping[str, float]:
        return dict.fromkeys(self._logged, 0.0)

    @property
    def _logged(self) -> tuple[str, ...]:
        return ("reward", "advantage", "length", *(("baseline",) if self.rival is not None else ()))

    def prepare(self, samples: list[Sample], rng: Random, partners: Partners | None = None) -> list[Sample]:
        return samples

    def counts(self, batch: Batch) -> Losses:
        drawn = torch.tensor(len(batch) * self.samples)
        return dict.fromkeys((self.name, *self._logged), drawn)

    def losses(self, model: Any, batch: Batch) -> Iterator[Losses]:
        with torch.no_grad(), _mode(model, self.dropout):
            drawn = self.draw(model, batch)
            rivals = None
        if self.rival is not None:
            with torch.no_grad(), _mode(model, False):
                rivals = self.rival(model, batch)
        rewards = self._judged(batch, drawn)
        baseline = self._baseline(batch, rewards, rivals)
        self._show(batch, drawn, rewards, baseline)
        device = batch.boxes.device
        advantage = (rewards - baseline).flatten().to(device)
        # Weights that autocast made small while no gradient was wanted would hand none on.
        torch.clear_autocast_cache()
        with _mode(model, self.dropout):
            logs = self.log_probabilities(model, batch, drawn)
        length = sum(len(caption) for captions in drawn for caption in captions)
        logged = {"reward": rewards.sum(), "advantage": advantage.abs().sum(), "length": torch.tensor(float(length)),
                  "baseline": baseline.sum()}  # fmt: skip
        yield {self.name: -(advantage * logs).sum()} | {name: logged[name].to(device) for name in self._logged}

    def log_probabilities(self, model: Any, batch: Batch, captions: list[list[Caption]]) -> Float[Tensor, "N"]:
        """Of whole captions, those of the first picture first, in one pass with a gradient."""
        asked = rewritten(batch, captions, self.ask)
        states = model(replace(asked, request=self.ask.request(asked)))
        assert states.target is not None
        assert asked.target_labels is not None
        costs = word_losses(model, states.target, asked.target_labels)
        of_caption = (asked.target_labels != IGNORE).nonzero()[:, 0]
        return costs.new_zeros(len(asked)).index_add(0, of_caption, -costs)

    def _judged(self, batch: Batch, captions: list[list[Caption]]) -> Float[Tensor, "B K"]:
        rewards = self.reward(batch, captions)
        if not rewards.isfinite().all():
            row, column = (~rewards.isfinite()).nonzero()[0].tolist()
            raise TrainingError(
                f"the reward of a caption is {float(rewards[row, column])}, wanted a number (record {batch.keys[row]}: "
                f"{self.reward.spell(captions[row][column])!r}); look at its references"
            )
        return rewards.float()

    def _baseline(
        self, batch: Batch, rewards: Float[Tensor, "B K"], rivals: list[list[Caption]] | None
    ) -> Float[Tensor, "B K"]:
        if rivals is None:
            return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
        return self._judged(batch, rivals)[:, :1].expand_as(rewards)

    def _show(self, batch: Batch, drawn: list[list[Caption]], rewards: Tensor, baseline: Tensor) -> None:
        self.examples[:] = [
            {
                "key": batch.pictures[row],
                "caption": self.reward.spell(drawn[row][0]),
                "reward": round(float(rewards[row, 0]), 4),
                "baseline": round(float(baseline[row, 0]), 4),
            }
            for row in range(min(SHOWN, len(batch)))
        ]


def rewritten(batch: Batch, captions: Sequence[Sequence[Caption]], ask: Objective) -> Batch:
    """A row for each caption, with the picture's regions, arranged by `ask`."""
    samples = [
        Sample(key, picture, None, torch.tensor(caption, dtype=torch.long))
        for key, picture, of_picture in zip(batch.keys, batch.pictures, captions, strict=True)
        for caption in of_picture
    ]
    text = collate(ask.prepare(samples, Random(0))).to(batch.boxes.device)
    return replace(
        batch.repeat(len(captions[0])),
        attention=text.attention,
        text=text.text,
        text_present=text.text_present,
        word_counts=text.word_counts,
        places={},
        text_labels=text.text_labels,
        text_regions=None,
        target=text.target,
        target_present=text.target_present,
        target_labels=text.target_labels,
    )


@contextmanager
def _mode(model: Any, training: bool) -> Iterator[None]:
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)
