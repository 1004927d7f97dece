"""What a region weighed on a word, against decoding with and without the region."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from diptych.core import Regions, Sample, collate
from diptych.data.store.tokens import Tokens
from diptych.models.decoding import DecodingOptions, decode
from diptych.tasks.answers import UNKNOWN, Answers
from diptych.tasks.influence import covering, weigh_answer, weigh_words
from diptych.tasks.spec import AnswerForm
from diptych.tasks.vqa import Vqa
from tests.support import toy

pytestmark = pytest.mark.learns


@pytest.fixture(scope="module", params=["unified-vlp", "tden", "tden with two classifiers"])
def model(request: pytest.FixtureRequest) -> Any:
    """One that asks by queries, and decoders that read the words before."""
    torch.manual_seed(1)
    if request.param == "unified-vlp":
        return toy.model("word", "answer", std=0.2).eval()
    return toy.tden("word", "answer", std=0.2, vqa_fusion="paper" if request.param == "tden" else "official").eval()


def apart(regions: Regions | None) -> Regions:
    """The same with boxes of which none covers another."""
    assert regions is not None
    starts = torch.arange(len(regions), dtype=torch.float)[:, None] / 10
    return replace(regions, boxes=torch.cat([starts, starts, starts + 0.1, starts + 0.1], 1))


def log_probability(model: Any, regions: Regions, words: list[int]) -> list[float]:
    """Of each word, asked one by one as decoding asks."""
    batch = collate([Sample("", "", regions, torch.zeros(0, dtype=torch.long))])
    scores, memory = model.begin(batch, len(words))
    logs = []
    for word in words:
        logs.append(float(scores.reshape(-1).log_softmax(-1)[word]))
        scores = model.follow(memory, torch.tensor([[word]]), torch.tensor([[0]]))
    return logs


@torch.no_grad()
def test_a_weight_is_what_the_word_loses_without_the_region(model: Any) -> None:
    regions = apart(toy.sample(3).regions)
    batch = collate([Sample("", "", regions, torch.zeros(0, dtype=torch.long))])
    words = decode(model, batch, DecodingOptions(max_words=4, min_words=4))[0][0].tokens
    weights = weigh_words(model, regions, torch.tensor(words))
    assert weights.shape == (len(words), len(regions))
    everything = torch.tensor(log_probability(model, regions, words))
    for row in range(len(regions)):
        without = regions.take(torch.arange(len(regions)) != row)
        expected = everything - torch.tensor(log_probability(model, without, words))
        assert weights[:, row].allclose(expected, atol=1e-5)
    assert weights.abs().max() > 1e-4


@pytest.mark.parametrize("form", ["binary", "softmax"])
@torch.no_grad()
def test_the_weights_of_an_answer(model: Any, form: AnswerForm) -> None:
    """They are of the probability that the task gives the answer, with the region and without it."""
    sample = toy.sample(3)
    sample = replace(sample, regions=apart(sample.regions))
    assert sample.regions is not None
    task = Vqa(Tokens.train(["a dog"]), Answers((UNKNOWN, *"abcdef")), form=form)
    weights = weigh_answer(model, sample.regions, sample.text, 2, task.log_probabilities)

    def chance(regions: Regions) -> float:
        logits = model.heads["answer"](model(collate([Sample("", "", regions, sample.text)])))
        logits[..., 0] = -torch.inf
        shares = logits.sigmoid() if form == "binary" and logits.dim() == 2 else logits.softmax(-1)
        return float(shares.reshape(-1, 7).mean(0)[2].log())

    without = sample.regions.take(torch.arange(len(sample.regions)) != 0)
    assert float(weights[0, 0]) == pytest.approx(chance(sample.regions) - chance(without), abs=1e-5)


def test_no_words_and_a_single_region(model: Any) -> None:
    regions = toy.sample(3).regions
    assert regions is not None
    assert weigh_words(model, regions, torch.zeros(0, dtype=torch.long)).shape == (0, len(regions))
    assert weigh_words(model, regions.first(1), torch.tensor([6, 7])).shape == (2, 1)


@torch.no_grad()
def test_regions_that_cover_one_another_are_taken_away_together(model: Any) -> None:
    """What is seen twice can be missed once: each of the two weighs what both do."""
    regions = toy.sample(3, 3).regions
    assert regions is not None
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.5], [0.6, 0.6, 0.9, 0.9], [0.1, 0.1, 0.5, 0.52]])
    regions = replace(regions, boxes=boxes)
    assert covering(regions) == [[0, 2], [1]]
    assert covering(replace(regions, boxes=boxes[[0, 0, 0]])) == [[0, 1, 2]]
    words = [6, 7]
    weights = weigh_words(model, regions, torch.tensor(words))
    assert weights[:, 0].equal(weights[:, 2])
    everything, alone = (
        torch.tensor(log_probability(model, seen, words)) for seen in (regions, regions.take(torch.tensor([1])))
    )
    assert weights[:, 0].allclose(everything - alone, atol=1e-5)
