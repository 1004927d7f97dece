"""The triplet loss by hand: three pictures, three texts, rows are texts."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.core import Sample, States, collate
from diptych.objectives import Similarity
from tests.support import toy

SCORES = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.5, 0.6], [0.0, 0.2, 0.4]])
DIFFERENT = torch.eye(3, dtype=torch.bool)
# By text, own score 0.9 / 0.5 / 0.4, margin 0.2:  (0.1, 0) (0, 0.3) (0, 0)
# By picture, the same own scores:                 (0, 0) (0.5, 0) (0, 0.4)


def test_the_paper_takes_the_mean_over_all_wrong_pairs():
    """tden.ism, paper."""
    texts, pictures = Similarity("paper", 0.2).costs(SCORES, DIFFERENT)
    torch.testing.assert_close(texts, torch.tensor([0.05, 0.15, 0.0]))
    torch.testing.assert_close(pictures, torch.tensor([0.0, 0.25, 0.2]))


def test_the_code_takes_the_hardest():
    """tden.ism, official: xmodaler."""
    texts, pictures = Similarity("official").costs(SCORES, DIFFERENT)
    torch.testing.assert_close(texts, torch.tensor([0.1, 0.3, 0.0]))
    torch.testing.assert_close(pictures, torch.tensor([0.0, 0.5, 0.4]))


def test_the_older_code_takes_the_mean_of_what_violates():
    """tden.ism, older: two violations each way at margin 0.2; its own margin is 0.5."""
    texts, pictures = Similarity("older", 0.2).costs(SCORES, DIFFERENT)
    torch.testing.assert_close(texts.sum(), torch.tensor(0.4 / 2))
    torch.testing.assert_close(pictures.sum(), torch.tensor(0.9 / 2))
    wide, _ = Similarity("older").costs(SCORES, DIFFERENT)
    torch.testing.assert_close(wide.sum(), torch.tensor((0.4 + 0.3 + 0.6 + 0.1 + 0.3) / 5))


def test_texts_of_one_picture_are_no_wrong_pair():
    same = DIFFERENT.clone()
    same[0, 1] = same[1, 0] = True
    for form, by_text in (("paper", 0.0), ("official", 0.0), ("older", 0.0)):
        texts, pictures = Similarity(form, 0.2).costs(SCORES, same)
        assert float(texts[0]) == pytest.approx(by_text)
        assert float(pictures[1]) == pytest.approx(0.0)


@given(size=st.integers(1, 6), form=st.sampled_from(["paper", "official", "older"]), seed=st.integers(0, 99))
def test_it_is_zero_where_every_pair_is_far_ahead(size, form, seed):
    scores = torch.rand(size, size, generator=torch.Generator().manual_seed(seed)) * 0.1 + torch.eye(size)
    texts, pictures = Similarity(form).costs(scores, torch.eye(size, dtype=torch.bool))
    assert float(texts.sum() + pictures.sum()) == 0


class Says(torch.nn.Module):
    def __init__(self, said: Any) -> None:
        super().__init__()
        self.said = said

    def forward(self, states: States) -> Any:
        return self.said


def test_the_loss_of_a_batch():
    """Names of pictures say what is wrong: the first two samples show one picture."""
    first = torch.nn.functional.normalize(torch.randn(3, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    second = torch.nn.functional.normalize(torch.randn(3, 5, generator=torch.Generator().manual_seed(1)), dim=1)
    model = toy.tden()
    model.heads["similarity"] = Says((first, second))
    samples = [toy.sample(seed) for seed in (0, 1, 2)]
    for shared in (False, True):
        batch = collate(samples)
        batch.pictures = ["a", "a", "b"] if shared else ["a", "b", "c"]
        same = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]]).bool() if shared else DIFFERENT
        objective = Similarity("official")
        texts, pictures = objective.costs(second @ first.T, same)
        found = objective.loss(model, States(torch.zeros(3, 0, 4), torch.zeros(3, 0, 4)), batch)
        torch.testing.assert_close(found, (texts + pictures).sum())
        assert int(objective.count(batch)) == 3
    assert objective.prepare(samples, Random(0)) == samples


def check_copies_cost(samples: list[Sample]) -> None:
    """The first two of three samples are equal in one form; by content, their pairs cost nothing."""
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    model = toy.tden()
    model.heads["similarity"] = Says((vectors, vectors))
    states = model(collate([toy.sample(seed) for seed in range(3)]))
    for equal_texts, cost in (("papers", 4 * 0.2), ("content", 0.0)):
        loss = Similarity("official", equal_texts=equal_texts).loss(model, states, collate(samples))
        assert loss.item() == pytest.approx(cost), equal_texts


def test_a_copy_of_the_right_text_is_no_negative_by_content() -> None:
    """Two images have the same words, one of them masked: their pairs cost the margin in the papers only."""
    text = torch.tensor([[5, 6, 7], [5, 2, 7], [5, 6, 8]])
    labels = torch.tensor([[-1, -1, -1], [-1, 6, -1], [-1, -1, -1]])
    samples = [
        Sample(f"k{at}", f"p{at}", None, row, text_labels=label)
        for at, (row, label) in enumerate(zip(text, labels, strict=True))
    ]
    check_copies_cost(samples)


def test_a_copy_of_the_right_image_is_no_negative_by_content() -> None:
    """Two images are the same under two names; the pairs of their texts cost the margin in the papers only."""
    contents = (7, 7, None)
    samples = [
        replace(Sample(f"k{at}", f"p{at}", None, torch.tensor([5 + at])), content=contents[at]) for at in (0, 1, 2)
    ]
    check_copies_cost(samples)
