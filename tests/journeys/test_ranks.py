"""The same command by 1, 2 and 4 processes, and by one that accumulates: the same losses, the same weights."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from diptych.testing.runs import ALIKE, assert_alike
from diptych.training.checkpoint import steps_in
from tests.journeys.conftest import ENVIRONMENT

PROGRAM = Path(__file__).with_name("ranks.py")
START = {  # recipe -> of the model that it begins from
    "unified-vlp/small/pretrain": None,
    "vl-bert/small/pretrain": None,
    "image-bert/small/pretrain": None,  # wrong pairs out of the whole batch
    "image-bert/small/retrieval": "image-bert/small/pretrain",  # and groups of them
    "xgpt/small/pretrain": None,
    "tden/small/pretrain": None,  # words are drawn in the midst of a step
    "unified-vlp/small/scst": "unified-vlp/small/caption",  # and whole captions
}
TOGETHER = "tden/small/pretrain"  # compares the pairs of a batch: of all processes, not of all parts of one


def asked(recipe: str, out: Path, start: Path | None, **more: object) -> str:
    settings = [f"{key}={value}" for key, value in {**ALIKE, **more}.items()]
    return json.dumps({"recipe": recipe, "out": str(out), "start": str(start or ""), "settings": settings})


def run(world: Path, *runs: str, processes: int = 1) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else []), str(PROGRAM), str(world), *runs]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def runs(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of each number of processes all runs in one torchrun, as starting one takes longest."""
    root = tmp_path_factory.mktemp("ranks")
    begun = {start: root / "start" / start for start in START.values() if start is not None}
    run(world, *(asked(recipe, out, None, **{"training.steps": 1}) for recipe, out in begun.items()))

    def all_of(name: str, **more: object) -> list[str]:
        return [
            asked(recipe, root / name / recipe, None if start is None else begun[start], **more)
            for recipe, start in START.items()
        ]

    run(world, *all_of("1"), *all_of("parts of 3", **{"training.micro_batch": 3}))
    for count in (2, 4):
        for recipe in START:
            shorten(root / "1" / recipe, root / f"1, then {count}" / recipe)
        run(world, *all_of(str(count)), *all_of(f"1, then {count}"), processes=count)
    return root


def shorten(whole: Path, copy: Path) -> None:
    """A copy of a run as it was after step 3."""
    shutil.copytree(whole, copy)
    shutil.rmtree(copy / "checkpoints" / "step-00000006")
    shutil.rmtree(copy / "model")
    assert steps_in(copy / "checkpoints") == [3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        (recipe, name)
        for recipe in START
        for name in ("parts of 3", "2", "4", "1, then 2", "1, then 4")
        if (recipe, name) != (TOGETHER, "parts of 3")
    ],
)
def test_equal_one_process(runs: Path, recipe: str, name: str) -> None:
    assert_alike(runs / "1" / recipe, runs / name / recipe)
