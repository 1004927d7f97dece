"""The loss against numbers by hand, the gradient against the one that is expected, and rewards that cannot be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from diptych.core import Batch, collate
from diptych.objectives import MaskedQueries, SelfCritical
from diptych.runtime.errors import RecipeError, TrainingError
from diptych.systems.unified_vlp.model import UnifiedVLP
from tests.support import toy

END = toy.VOCABULARY.sep


@dataclass
class Wanted:
    """The more of a word, the better; a table of rewards where one is given."""

    word: int = 7
    table: Tensor | None = None

    def __call__(self, batch: Batch, captions: Sequence[Sequence[list[int]]]) -> Tensor:
        if self.table is not None:
            return self.table
        return torch.tensor([[float(caption.count(self.word)) for caption in texts] for texts in captions])

    def spell(self, caption: list[int]) -> str:
        return " ".join(map(str, caption))


def fixed(*captions: list[int]) -> Any:
    return lambda model, batch: [list(captions) for _ in range(len(batch))]


def batch_of(count: int) -> Batch:
    return collate([toy.sample(n, 2 + n % 3) for n in range(count)])


def update(reward: Wanted, *captions: list[int], **more: Any) -> SelfCritical:
    more = {"samples": len(captions)} | more
    return SelfCritical(MaskedQueries(toy.VOCABULARY), reward, fixed(*captions), **more)


def by_hand(model: UnifiedVLP, batch: Batch, caption: list[int]) -> Tensor:
    """log p of the caption for each picture, word by word through the memory."""
    scores, memory = model.begin(batch, len(caption))
    total = torch.zeros(len(batch))
    for word in caption:
        total = total + scores.view(len(batch), -1).log_softmax(-1)[:, word]
        scores = model.follow(memory, torch.full((len(batch), 1), word), torch.zeros(len(batch), 1, dtype=torch.long))
    return total


@pytest.mark.parametrize("baseline", ["mean", "rival"])
def test_the_loss_by_hand(baseline: str) -> None:
    model, batch = toy.model("word"), batch_of(3)
    short, long = [5, END], [6, 7, 8]
    rewards = torch.tensor([[1.0, 0.5], [0.0, 2.0], [3.0, 3.0]])
    with torch.no_grad():
        logs = torch.stack([by_hand(model, batch, short), by_hand(model, batch, long)], 1)
    if baseline == "mean":
        against = rewards.flip(1)  # of two, the other
        one = update(Wanted(table=rewards), short, long)
    else:
        rivals = torch.tensor([[0.5], [0.5], [4.0]])
        against = rivals.expand(-1, 2)
        tables = iter([rewards, rivals])
        reward = Wanted()
        reward.__class__ = type("Twice", (Wanted,), {"__call__": lambda self, batch, captions: next(tables)})
        one = update(reward, short, long, rival=fixed([9, END]))
    with torch.no_grad():
        (losses,) = one.losses(model, batch)
    assert float(losses["self_critical"]) == pytest.approx(float(-((rewards - against) * logs).sum()), abs=1e-4)
    assert float(losses["reward"]) == pytest.approx(9.5)
    assert float(losses["advantage"]) == pytest.approx(float((rewards - against).abs().sum()))
    if baseline == "rival":
        assert float(losses["baseline"]) == pytest.approx(float(against.sum()))
    assert float(losses["length"]) == 3 * (2 + 3)
    assert all(float(count) == 6 for count in one.counts(batch).values())
    assert one.weights == dict.fromkeys(losses.keys() - {"self_critical"}, 0.0)
    assert ("baseline" in losses) == (baseline == "rival"), "the mean of the others is the mean reward again"


def test_what_is_shown_is_what_was_drawn() -> None:
    one = update(Wanted(7), [7, 7, END], [5, END])
    list(one.losses(toy.model("word"), batch_of(4)))
    assert len(one.examples) == 3
    assert one.examples[0] == {"key": "picture/0", "caption": f"7 7 {END}", "reward": 2.0, "baseline": 0.0}


def test_every_model_mode_comes_back_and_half_precision_keeps_its_gradient() -> None:
    """Decoding without a gradient first must not leave weights in autocast's cache that hand none on."""
    from diptych.models.decoding import DecodingOptions, decode

    def draw(model: Any, batch: Batch) -> list[list[list[int]]]:
        assert not model.training
        found = decode(model, batch, DecodingOptions(sample=True, captions=2, max_words=5))
        return [[[*text.tokens, END] for text in texts] for texts in found]

    model, batch = toy.model("word", dropout=0.1).train(), batch_of(4)
    one = SelfCritical(MaskedQueries(toy.VOCABULARY), Wanted(table=torch.tensor([[1.0, 0.0]] * 4)), draw, samples=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (losses,) = one.losses(model, batch)
    losses["self_critical"].backward()
    assert model.training
    silent = [n for n, p in model.named_parameters() if p.grad is None and "segments" not in n]
    assert not silent


def test_dropout_where_it_is_asked_for() -> None:
    seen: list[bool] = []

    def draw(model: Any, batch: Batch) -> list[list[list[int]]]:
        seen.append(model.training)
        return [[[5, END]] for _ in range(len(batch))]

    for dropout in (True, False):
        more: dict[str, Any] = {"rival": draw, "samples": 1, "dropout": dropout}
        list(SelfCritical(MaskedQueries(toy.VOCABULARY), Wanted(), draw, **more).losses(toy.model("word"), batch_of(2)))
    assert seen == [True, False, False, False], "the rival never has dropout"


@pytest.mark.slow
def test_the_reward_rises() -> None:
    """Thirty steps towards a word that the model hardly says."""
    from diptych.models.decoding import DecodingOptions, decode

    def draw(model: Any, batch: Batch) -> list[list[list[int]]]:
        found = decode(model, batch, DecodingOptions(sample=True, captions=6, max_words=4))
        return [[[*t.tokens, END] if len(t.tokens) < 4 else t.tokens for t in texts] for texts in found]

    model, batch = toy.model("word", std=0.05).train(), batch_of(6)
    one = SelfCritical(MaskedQueries(toy.VOCABULARY), Wanted(7), draw, samples=6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    torch.manual_seed(0)
    rewards = []
    for _ in range(30):
        (losses,) = one.losses(model, batch)
        (losses["self_critical"] / 36).backward()
        optimizer.step()
        optimizer.zero_grad()
        rewards.append(float(losses["reward"]) / 36)
    assert rewards[0] < 0.5
    assert sum(rewards[-3:]) / 3 > 2


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_stops_the_run(reward: float) -> None:
    one = update(Wanted(table=torch.tensor([[1.0, 1.0], [1.0, reward]])), [5, END], [6, END])
    with pytest.raises(TrainingError, match=r"record toy/1: '6 3'\); check its references"):
        list(one.losses(toy.model("word"), batch_of(2)))


def test_the_mean_of_no_others_is_refused() -> None:
    with pytest.raises(RecipeError, match="samples=1 draws no others"):
        update(Wanted(), [5, END])
