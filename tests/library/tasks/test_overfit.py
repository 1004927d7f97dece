"""Every filled cell of systems x tasks: eight samples learnt by heart, and answered rightly."""

from typing import Any

import pytest

from diptych.systems import RECIPES, SYSTEMS
from diptych.tasks.retrieval import RetrievalObjectives
from diptych.testing import EIGHT, Case, check_heads, check_overfit
from tests.support.cases import case_of
from tests.support.deciding import RECORDS

pytestmark = pytest.mark.learns

TASKS = ("vcr", "referring", "nlvr", "entailment", "classify")
TELLING = ("caption", "vqa", "retrieval")


def cells(names: tuple[str, ...]) -> list[Any]:
    """All filled cells; those off the diagonal, where each system and each task is met once, are for `thorough`."""
    filled = [(s, t) for s in SYSTEMS for t in names if f"{s}/small/{t}" in RECIPES]
    here = {(system, names[place % len(names)]) for place, system in enumerate(SYSTEMS)}
    return [cell if cell in here else pytest.param(*cell, marks=pytest.mark.thorough) for cell in filled]


@pytest.mark.parametrize(("system", "task_name"), cells(TASKS))
def test_eight_samples_are_learnt_by_heart(system: str, task_name: str) -> None:
    case = case_of(f"{system}/small/{task_name}", records=RECORDS)
    assert len(case.samples) == 8
    check_overfit(case, enough=0.02)


@pytest.mark.parametrize("task_name", [*TASKS, "vqa"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_heads_say_what_they_read(system: str, task_name: str) -> None:
    """Losses, gradients and answers are the same with rubbish in all rows that no head reads."""
    case = case_of(f"{system}/small/{task_name}", records=EIGHT if task_name == "vqa" else RECORDS)
    assert check_heads(case) > 0 or "vqa_fusion" in case.recipe.model.structural


@pytest.mark.parametrize(("system", "task_name"), cells(TELLING))
def test_eight_pictures_are_learnt_by_heart(system: str, task_name: str) -> None:
    """What is asked is drawn anew at every step: which words are hidden, and which pairs are wrong."""
    recipe = RECIPES[f"{system}/small/{task_name}"]()
    if isinstance(recipe.objectives, RetrievalObjectives):
        recipe = recipe.override(["objectives.pairs=8"])  # a picture against all the others
    case = case_of(recipe)
    assert len(case.samples) == 8
    # A loss over wrong pairs drawn anew says little: all 64 pairs are ranked in the end.
    enough, lr = (float("inf"), 1e-3) if task_name == "retrieval" else (0.05, 2e-3)
    check_overfit(case, steps=600, lr=lr, enough=enough, anew=True, right=_all_right)


def _all_right(case: Case) -> bool:
    if case.recipe.task == "caption":
        return [one["caption"] for one in case.predictions()] == [record.captions[0] for record in EIGHT]
    scores = case.scores()
    retrieval = ("image retrieval R@1", "text retrieval R@1")
    return all(scores[name] == 100 for name in (retrieval if case.recipe.task == "retrieval" else ("accuracy",)))


def test_what_does_not_learn_is_named() -> None:
    """One step teaches nothing."""
    with pytest.raises(AssertionError, match=r"^image-bert/small/vqa: after 1 steps the losses .*expected below 0.05"):
        check_overfit(case_of("image-bert/small/vqa"), steps=1)


def test_a_head_that_reads_more_than_it_names_is_caught() -> None:
    case = case_of("image-bert/small/vqa")
    case.model.heads["answer"].reads = frozenset()
    with pytest.raises(AssertionError, match="not close"):
        check_heads(case)


def test_what_writes_no_captions_is_no_decoder() -> None:
    """The cells of the table that stay empty."""
    assert {name for name in SYSTEMS if f"{name}/small/caption" not in RECIPES} == {"vl-bert", "image-bert"}
