"""Which boxes become regions."""

import pytest
import torch

from diptych.runtime.errors import RecipeError
from diptych.systems import SYSTEMS
from diptych.vision.detectors.selection import SELECTIONS, Selection

BOXES = torch.tensor([[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.48], [0.6, 0.6, 1, 1], [0.6, 0, 1, 0.3]])
SCORES = torch.tensor([0.9, 0.8, 0.3, 0.6])
KINDS = torch.tensor([1, 1, 1, 0])


def chosen(**rule: object) -> list[int]:
    return Selection(**rule).choose(BOXES, SCORES, KINDS).tolist()  # type: ignore[arg-type]


def test_a_box_that_overlaps_a_better_one_is_dropped() -> None:
    assert chosen(overlap=0.5) == [0, 3, 2]
    assert chosen(overlap=None) == [0, 1, 3, 2]
    assert chosen(overlap=0.97) == [0, 1, 3, 2]


def test_a_box_of_another_kind_is_dropped_only_over_all_classes() -> None:
    kinds = torch.tensor([1, 2, 1, 0])
    assert Selection(overlap=0.5).choose(BOXES, SCORES, kinds).tolist() == [0, 1, 3, 2]
    assert Selection(overlap=0.5, per_class=False).choose(BOXES, SCORES, kinds).tolist() == [0, 3, 2]


def test_the_best_stay_and_a_score_must_be_passed() -> None:
    assert chosen(most=2) == [0, 3]
    assert chosen(score=0.5) == [0, 3]
    assert chosen(score=0.95) == []
    equal = torch.full((4,), 0.5)
    assert Selection(score=0.5).choose(BOXES, equal, KINDS).tolist() == []


def test_at_least_so_many_come_back_the_overlapping_ones_last() -> None:
    assert chosen(score=0.95, least=1) == [0]
    assert chosen(score=0.5, least=3) == [0, 3, 2]
    assert chosen(most=4, least=4) == [0, 3, 2, 1]
    assert chosen(most=9, least=9) == [0, 3, 2, 1]  # there are no more


def test_ties_go_to_the_first() -> None:
    same = torch.full((4,), 0.5)
    assert Selection(most=2, overlap=None).choose(BOXES, same, KINDS).tolist() == [0, 1]
    assert Selection(most=2, overlap=0.5).choose(BOXES, same, KINDS).tolist() == [0, 2]


def test_the_papers_rules_in_words() -> None:
    rules = dict(SELECTIONS)
    for system in SYSTEMS.values():
        rules |= system.rules
    assert {name: str(rule) for name, rule in rules.items()} == {
        "unified-vlp": "exactly 100, by score, NMS 0.5 per class",
        "vl-bert": "at least 10, at most 100, score over 0.5, NMS 0.5 per class",
        "tden": "at most 100, score over 0.2, NMS 0.5 per class",
        "tden-official": "at most 50, score over 0.2, NMS 0.5 per class",
        "xgpt": "exactly 100, by score, NMS 0.5 per class",
        "image-bert": "exactly 100, by score, NMS 0.5 per class",
        "image-bert-36": "exactly 36, by score, NMS 0.5 per class",
        "storybook": "at least 1, at most 12, score over 0.3, NMS 0.6 per class",
    }


def test_a_rule_that_cannot_be_met_is_refused() -> None:
    with pytest.raises(RecipeError, match="least=5 and most=3"):
        Selection(most=3, least=5)
    with pytest.raises(RecipeError, match="between 0 and 1"):
        Selection(score=50.0)
