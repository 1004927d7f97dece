"""Self-critical sequence training (SCST, arXiv 1612.00563): a metric rewards captions that the model samples.

The loss of a sampled caption c is -(reward(c) - baseline) * log p(c) (Rennie et al. 2017). It raises the probability of
captions that are better than the baseline. Captions are sampled without a gradient. A second pass over all words at
once then gives log p(c) with a gradient. So the graph of the decoding steps need not be kept.
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

Caption = list[int]  # token ids, with the final [SEP] if the caption ended within the maximum length
# (model, batch) -> captions of each image; each image has the same number.
Draw = Callable[[Any, Batch], list[list[Caption]]]
# The captions of this many images of a batch are logged.
SHOWN = 3


@runtime_checkable
class Reward(Protocol):
    """A function that rewards captions. The recipe provides it, because objectives do not import metrics."""

    def __call__(self, batch: Batch, captions: Sequence[Sequence[Caption]]) -> Float[Tensor, "B K"]: ...

    def spell(self, caption: Caption) -> str: ...  # returns the caption as text


@dataclass(frozen=True)
class SelfCritical:
    """Rewarded captions: captions with a higher score than the baseline become more probable.

    A policy gradient update on K sampled captions per image.

    rival    generates the caption whose reward is the baseline, by greedy or beam search. None: the baseline is the
             mean reward of the image's other sampled captions (Luo 2020, arXiv 2003.09971)
    ask      arranges captions so that one pass predicts all words: MaskedQueries, or GenerateText for decoders
    dropout  True: sampling and scoring use dropout, with different masks (Unified VLP's code samples with dropout).
             False: words are scored with exactly the probabilities from which they were sampled

    The log also has four values with weight 0: the mean reward, the mean absolute advantage, the mean length including
    [SEP], and with a rival the mean baseline. An advantage of 0 means that all captions of an image have the same
    reward. Without a rival the mean baseline equals the mean reward, so it is not logged.
    """

    ask: Objective
    reward: Reward
    draw: Draw
    rival: Draw | None = None
    samples: int = 5  # number of captions per image (K)
    dropout: bool = False
    examples: list[dict[str, Any]] = field(default_factory=list, compare=False)  # logged captions of the last batch

    name = "self_critical"
    needs: ClassVar[frozenset[Capability]] = frozenset({"decode"})

    def __post_init__(self) -> None:
        if self.rival is None and self.samples < 2:
            raise RecipeError(
                "the baseline is the mean of the image's other captions, but samples=1 draws no others; set "
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
        # Sampling without gradients left casts of the weights in autocast's cache. They must not be used below.
        torch.clear_autocast_cache()
        with _mode(model, self.dropout):
            logs = self.log_probabilities(model, batch, drawn)
        length = sum(len(caption) for captions in drawn for caption in captions)
        logged = {"reward": rewards.sum(), "advantage": advantage.abs().sum(), "length": torch.tensor(float(length)),
                  "baseline": baseline.sum()}  # fmt: skip
        yield {self.name: -(advantage * logs).sum()} | {name: logged[name].to(device) for name in self._logged}

    def log_probabilities(self, model: Any, batch: Batch, captions: list[list[Caption]]) -> Float[Tensor, "N"]:
        """Return the log-probability of each caption, with a gradient, from one forward pass."""
        scored = rewritten(batch, captions, self.ask)
        states = model(replace(scored, request=self.ask.request(scored)))
        assert states.target is not None
        assert scored.target_labels is not None
        costs = word_losses(model, states.target, scored.target_labels)
        caption_numbers = (scored.target_labels != IGNORE).nonzero()[:, 0]
        return costs.new_zeros(len(scored)).index_add(0, caption_numbers, -costs)

    def _judged(self, batch: Batch, captions: list[list[Caption]]) -> Float[Tensor, "B K"]:
        rewards = self.reward(batch, captions)
        if not rewards.isfinite().all():
            row, column = (~rewards.isfinite()).nonzero()[0].tolist()
            raise TrainingError(
                f"the reward of a caption is {float(rewards[row, column])}, expected a finite number (record "
                f"{batch.keys[row]}: {self.reward.spell(captions[row][column])!r}); check its references"
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
    """Return a batch with one row per caption and its image's regions. `ask` arranges the words."""
    samples = [
        Sample(key, picture, None, torch.tensor(caption, dtype=torch.long))
        for key, picture, of_picture in zip(batch.keys, batch.pictures, captions, strict=True)
        for caption in of_picture
    ]
    text = collate(ask.prepare(samples, Random(0))).to(batch.boxes.device)
    names = ("attention", "text", "text_present", "text_labels", "word_counts", "target", "target_present",
             "target_labels")  # fmt: skip
    read: dict[str, Any] = {name: getattr(text, name) for name in names}
    return replace(batch.repeat(len(captions[0])), **read, text_regions=None)


@contextmanager
def _mode(model: Any, training: bool) -> Iterator[None]:
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)
