"""The same command by 1, 2 and 4 processes, and by one that accumulates: the same losses, the same weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from diptych.testing.runs import ALIKE, assert_alike
from diptych.training.checkpoint import steps_in
from tests.journeys.conftest import ENVIRONMENT
from tests.support import zygote

PROGRAM = Path(__file__).parents[1] / "support" / "ranks.py"
START = {  # recipe -> of the model that it begins from
    "unified-vlp/small/pretrain": None,
    "vl-bert/small/pretrain": None,
    "image-bert/small/pretrain": None,  # wrong pairs out of the whole batch
    "image-bert/small/retrieval": "image-bert/small/pretrain",  # and groups of them
    "xgpt/small/pretrain": None,
    "tden/small/pretrain": None,  # words are drawn in the midst of a step
    "unified-vlp/small/scst": "unified-vlp/small/caption",  # and whole captions
}
SMALL = {"model.width": 64, "model.heads": 2, "model.ffn": 128}  # what is compared does not depend on sizes
BY_FOUR = ("image-bert/small/pretrain", "tden/small/pretrain")  # of pairs across the batch; all in `thorough`
TOGETHER = "tden/small/pretrain"  # compares the pairs of a batch: of all processes, not of all parts of one


def asked(recipe: str, out: Path, start: Path | None, **more: object) -> str:
    settings = [f"{key}={value}" for key, value in {**ALIKE, **SMALL, **more}.items()]
    return json.dumps({"recipe": recipe, "out": str(out), "start": str(start or ""), "settings": settings})


def run(world: Path, *runs: str, processes: int = 1) -> None:
    ended = zygote.ranks([PROGRAM, world, *runs], processes, ENVIRONMENT)
    # As one text: pytest cuts the middle out of a list.
    said = "\n\n".join(f"rank {rank} ended with {one.returncode}:\n{one.stderr}" for rank, one in enumerate(ended))
    assert not any(done.returncode for done in ended), said


@pytest.fixture(scope="module")
def runs(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of each number of processes all runs in one start."""
    root = tmp_path_factory.mktemp("ranks")
    begun = {start: root / "start" / start for start in START.values() if start is not None}
    run(world, *(asked(recipe, out, None, **{"training.steps": 1}) for recipe, out in begun.items()))
    run(world, *all_of(root, "1"), *all_of(root, "parts of 3", **{"training.micro_batch": 3}))
    share(root, world, 2, START)
    share(root, world, 4, BY_FOUR)
    return root


@pytest.fixture(scope="module")
def all_by_four(runs: Path, world: Path) -> Path:
    share(runs, world, 4, [recipe for recipe in START if recipe not in BY_FOUR])
    return runs


def all_of(root: Path, name: str, recipes: Iterable[str] = START, **more: object) -> list[str]:
    starts = {recipe: START[recipe] for recipe in recipes}
    return [
        asked(recipe, root / name / recipe, start and root / "start" / start, **more)
        for recipe, start in starts.items()
    ]


def share(root: Path, world: Path, count: int, recipes: Iterable[str]) -> None:
    """By so many processes from the first step, and from the third."""
    for recipe in recipes:
        shorten(root / "1" / recipe, root / f"1, then {count}" / recipe)
    names = (str(count), f"1, then {count}")
    run(world, *(one for name in names for one in all_of(root, name, recipes)), processes=count)


def shorten(whole: Path, copy: Path) -> None:
    """A copy of a run as it was after step 3."""
    shutil.copytree(whole, copy)
    shutil.rmtree(copy / "checkpoints" / "step-00000006")
    shutil.rmtree(copy / "model")
    assert steps_in(copy / "checkpoints") == [3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "name"),
    [(recipe, name) for recipe in START for name in ("parts of 3", "2", "1, then 2")
     if (recipe, name) != (TOGETHER, "parts of 3")],
)  # fmt: skip
def test_equal_one_process(runs: Path, recipe: str, name: str) -> None:
    assert_alike(runs / "1" / recipe, runs / name / recipe)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4", "1, then 4"])
@pytest.mark.parametrize("recipe", BY_FOUR)
def test_four_equal_one_process(runs: Path, recipe: str, name: str) -> None:
    assert_alike(runs / "1" / recipe, runs / name / recipe)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["4", "1, then 4"])
@pytest.mark.parametrize("recipe", [recipe for recipe in START if recipe not in BY_FOUR])
def test_four_equal_one_process_in_every_recipe(all_by_four: Path, recipe: str, name: str) -> None:
    assert_alike(all_by_four / "1" / recipe, all_by_four / name / recipe)
