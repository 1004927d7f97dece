"""Each objective's loss against numbers computed by hand, and what a step hides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from math import exp, lcm, log
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from uniter.objectives import UniterObjectives, WordRegionAlignment, cosine_distances, transport

from diptych.core import IGNORE, Batch, Capability, Regions, Sample, States, Vocabulary, collate
from diptych.objectives import ImageTextMatching, MaskedRegionClass, MaskedRegionFeature

VOCABULARY = Vocabulary(size=20, pad=0, unknown=1, cls=2, sep=3, mask=4)


def sample(number: int, regions: int = 4, words: int = 5, matched: bool = True) -> Sample:
    drawn = torch.Generator().manual_seed(number)
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.5]]).repeat(regions, 1)
    features = torch.rand(regions, 6, generator=drawn)
    classes = torch.rand(regions, 4, generator=drawn).softmax(-1)
    seen = Regions(boxes, torch.ones(regions), (100, 100), classes, features)
    text = torch.tensor([*torch.randint(5, 20, (words,), generator=drawn).tolist(), VOCABULARY.sep])
    return Sample(str(number), f"picture/{number}", seen, text, matched=matched)


def states(batch: Batch, width: int = 8) -> States:
    torch.manual_seed(0)
    rows = len(batch)
    return States(
        torch.randn(rows, batch.boxes.shape[1], width, requires_grad=True),
        torch.randn(rows, batch.text.shape[1], width, requires_grad=True),
        special={"cls": torch.randn(rows, width, requires_grad=True)},
    )


class Heads(nn.Module):
    """A model of heads alone, which say what they are given."""

    provides: frozenset[Capability] = frozenset()

    def __init__(self, **said: Tensor) -> None:
        super().__init__()
        self.heads = {name: lambda _, value=value: value for name, value in said.items()}


def ipot(cost: list[list[float]], beta: float = 0.5, steps: int = 50) -> list[list[float]]:
    """Algorithm 1 of Xie et al. (2019), number by number."""
    rows, columns = range(len(cost)), range(len(cost[0]))
    plan = [[1.0 for _ in columns] for _ in rows]
    scale = [1 / len(rows) for _ in rows]
    for _ in range(steps):
        q = [[exp(-cost[i][j] / beta) * plan[i][j] for j in columns] for i in rows]
        other = [1 / (len(columns) * sum(q[i][j] * scale[i] for i in rows)) for j in columns]
        scale = [1 / (len(rows) * sum(q[i][j] * other[j] for j in columns)) for i in rows]
        plan = [[scale[i] * q[i][j] * other[j] for j in columns] for i in rows]
    return plan


def cheapest(cost: list[list[float]]) -> float:
    """The exact cost: each row and each column cut into equal pieces, and every way to pair these tried."""
    pieces = lcm(len(cost), len(cost[0]))
    row = [i for i in range(len(cost)) for _ in range(pieces // len(cost))]
    column = [j for j in range(len(cost[0])) for _ in range(pieces // len(cost[0]))]
    ways = permutations(range(pieces))
    return min(sum(cost[row[i]][column[j]] for i, j in enumerate(way)) for way in ways) / pieces


def test_the_plan_is_ipots_and_padding_changes_nothing() -> None:
    batch = collate([sample(0, regions=4, words=2), sample(1, regions=2, words=5)])
    words = torch.cat([torch.ones(2, 1, dtype=torch.bool), batch.text_present], 1)
    cost = torch.rand(2, words.shape[1], 4) * 2
    plan = transport(cost, words, batch.regions_present, beta=0.5, steps=50)
    for row, (count, regions) in enumerate(((4, 4), (7, 2))):
        expected = torch.tensor(ipot(cost[row, :count, :regions].tolist()))
        torch.testing.assert_close(plan[row, :count, :regions], expected, atol=1e-5, rtol=1e-4)
        assert plan[row].sum() == pytest.approx(1, abs=1e-5)
        assert plan[row, count:].abs().sum() + plan[row, :, regions:].abs().sum() == 0


@pytest.mark.parametrize(("words", "regions"), [(1, 2), (1, 4), (2, 3), (1, 3)])
def test_the_cost_comes_near_that_of_the_best_transport(words: int, regions: int) -> None:
    batch = collate([sample(0, regions=regions, words=words - 1)])
    found = states(batch)
    cost = cosine_distances(torch.cat([found.special["cls"][:, None], found.text], 1), found.regions)[0]
    distance = WordRegionAlignment(steps=400).distances(found, batch)[0].item()
    assert distance == pytest.approx(cheapest(cost.tolist()), abs=2e-3)
    assert distance >= cheapest(cost.tolist()) - 1e-5


def test_alignment_pulls_pairs_together_and_the_others_apart() -> None:
    batch = collate([sample(0), sample(1, regions=2, matched=False), sample(2, regions=3)])
    found, objective = states(batch), WordRegionAlignment()
    loss, costs = objective.loss(Heads(), found, batch), []
    for row, regions in enumerate((4, 2, 3)):
        words = torch.cat([found.special["cls"][row, None], found.text[row]])
        cost = cosine_distances(words[None], found.regions[row, None, :regions])[0]
        costs.append((cost * torch.tensor(ipot(cost.tolist()))).sum())
    expected = costs[0] - costs[1] + costs[2]
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    parts = (found.regions, found.text, found.special["cls"])
    for ours, by_hand in zip(torch.autograd.grad(loss, parts), torch.autograd.grad(expected, parts), strict=True):
        torch.testing.assert_close(ours, by_hand, atol=1e-5, rtol=1e-4)
    assert objective.count(batch) == 3


def test_text_alone_is_not_aligned() -> None:
    batch = collate([sample(0), replace(sample(1), regions=None)])
    found, objective = states(batch), WordRegionAlignment()
    assert objective.distances(found, batch)[1] == 0
    assert objective.count(batch) == 1


def test_matching_is_cross_entropy_of_two_classes() -> None:
    batch = collate([sample(0), sample(1, matched=False)])
    loss = ImageTextMatching().loss(Heads(match=torch.tensor([2.0, -0.5])), states(batch), batch)
    assert float(loss) == pytest.approx(log(1 + exp(-2.0)) + log(1 + exp(-0.5)), abs=1e-6)


def test_regions_classes_and_features() -> None:
    seen = sample(0, regions=2)
    assert seen.regions is not None
    hidden = replace(seen, regions=seen.regions.hide(torch.tensor([True, False])))
    batch = collate([hidden])
    assert batch.classes is not None
    assert batch.features is not None
    wanted, scores = batch.classes[0, 0].tolist(), [0.0, 1.0, 2.0, 0.5]
    logs = [score - log(sum(map(exp, scores))) for score in scores]
    model = Heads(region_class=torch.tensor([scores]), region_feature=batch.features[0, :1] + 0.5)
    best = wanted.index(max(wanted))
    soft = sum(p * (log(p) - told) for p, told in zip(wanted, logs, strict=True))
    for labels, cost in (("hard", -logs[best]), ("divergence", soft)):
        loss = MaskedRegionClass(labels=labels).loss(model, states(batch), batch)
        assert float(loss) == pytest.approx(cost, abs=1e-5)
    assert float(MaskedRegionFeature().loss(model, states(batch), batch)) == pytest.approx(0.25, abs=1e-6)


def test_either_words_or_regions_are_hidden() -> None:
    schedule = UniterObjectives(region_classes=1.0, rate=0.5).schedule(VOCABULARY)
    samples, seen = [sample(number) for number in range(8)], set()
    for step in range(60):
        update = schedule.at(step)
        batch = collate(update.prepare(samples, Random(step)))
        words, regions = bool((batch.text_labels != IGNORE).any()), bool(batch.hidden.any())
        assert not (words and regions)
        assert torch.equal(batch.chosen, batch.hidden)
        assert batch.matched.all() or not (words or regions)
        seen.add((update.objectives[0].name, words, regions))
    assert len(seen) == 5
    assert sum(words for _, words, _ in seen) == 1
    assert sum(regions for *_, regions in seen) == 3


@pytest.mark.parametrize("share", ["words", "region_features", "region_classes", "region_divergence"])
def test_one_is_hidden_at_least(share: str) -> None:
    """The code's random_word and _get_img_mask; the mark at a text's end is not a word."""
    shares = dict.fromkeys(("words", "matching", "region_features", "region_classes", "region_divergence"), 0.0)
    update = UniterObjectives(**{**shares, share: 1.0}, rate=1e-6).schedule(VOCABULARY).at(0)
    batch = collate(update.prepare([sample(number) for number in range(8)], Random(0)))
    hidden = batch.text_labels != IGNORE if share == "words" else batch.hidden
    assert (hidden.sum(1) == 1).all()
    assert not (batch.text_labels == VOCABULARY.sep).any()


def test_tasks_are_drawn_as_often_as_the_code_draws_them() -> None:
    schedule = UniterObjectives().schedule(VOCABULARY)
    drawn: Counter[Any] = Counter(schedule.at(step).objectives[0].name for step in range(4400))
    expected = {"masked_language": 4, "matching": 3, "masked_region_feature": 2, "masked_region_divergence": 2}
    assert {name: round(count / 400) for name, count in drawn.items()} == expected
    (matching,) = [update for update, _ in schedule.updates if len(update.objectives) == 2]
    assert matching.weights == {"word_region_alignment": 0.1}


def test_nothing_to_train_is_refused() -> None:
    off = dict.fromkeys(("words", "matching", "region_features", "region_divergence"), 0.0)
    with pytest.raises(ValueError, match="nothing to train"):
        UniterObjectives(**off)
