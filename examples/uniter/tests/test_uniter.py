"""Diptych's checks of anybody's system and task, on UNITER: `pytest` where the package is installed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diptych.plugin import RECIPES, Statement, TaskItem, load_plugins
from diptych.testing import EIGHT, Case, check_heads, check_masks, check_overfit, check_ranks, check_resume

LEARNT = 0.05  # nats a word or a pair
LABELS = ("entailment", "neutral", "contradiction")
SHARES = ("words", "matching", "region_features", "region_classes", "region_divergence")


# The same words for each picture, and what is right of them by chance.
JUDGED = [
    replace(
        one,
        statements=(Statement(one.key, "it flies", n % 2 == 0),),
        more={"entailment": (TaskItem(one.key, "it flies", LABELS[n % 3 : n % 3 + 1]),)},
    )
    for n, one in enumerate(EIGHT)
]


@pytest.fixture(autouse=True, scope="module")
def _plugins() -> None:
    load_plugins()


def only(share: str) -> Any:
    """Pre-training by one of its tasks alone, half of the words or regions hidden."""
    shares = {name: int(name == share) for name in SHARES}
    return RECIPES["uniter/small/pretrain"].but("one share", "", objectives={"rate": 0.5, **shares})()


@pytest.mark.parametrize("share", SHARES)
def test_each_objective_is_learnt_by_heart(share: str) -> None:
    told = share in ("words", "matching", "region_classes")
    check_overfit(Case.of(only(share)), enough=LEARNT if told else lambda start: 0.1 * max(start.values()))


def test_questions_are_learnt_by_heart() -> None:
    check_overfit(Case.of("uniter/small/vqa"))


@pytest.mark.parametrize(("task", "pictures"), [("entailment", 1), ("nlvr", 1), ("nlvr", 2)])
def test_verdicts_are_learnt_by_heart(task: str, pictures: int) -> None:
    check_overfit(Case.of(f"uniter/small/{task}", JUDGED, shape={"pictures": pictures}))


def test_pairs_are_told_apart() -> None:
    """Each picture against all captions."""
    every = {"pairs": 8, "negatives": "captions"}
    check_overfit(Case.of(RECIPES["uniter/small/retrieval"].but("every caption", "", objectives=every)()))


@pytest.mark.parametrize("share", SHARES)
def test_objectives_say_what_they_read(share: str) -> None:
    assert check_masks(Case.of(only(share))) > 0


@pytest.mark.parametrize("task", ["vqa", "retrieval", "entailment", "nlvr"])
def test_heads_say_what_they_read(task: str) -> None:
    assert check_heads(Case.of(f"uniter/small/{task}", JUDGED)) > 0


def test_a_killed_run_resumes_bit_by_bit(tmp_path: Path) -> None:
    check_resume("uniter/small/pretrain", tmp_path)


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    check_ranks("uniter/small/pretrain", tmp_path)
