"""The same command by 1, 2 and 4 processes, and by one that accumulates: the same losses, the same weights."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from diptych.training.checkpoint import steps_in
from tests.journeys.conftest import ENVIRONMENT

PROGRAM = Path(__file__).with_name("ranks.py")
SETTINGS = {
    "training.steps": 6, "training.checkpoint_every": 3, "training.batch": 8, "training.log_every": 1,
    "training.validate_every": "null", "training.patience": "null", "training.average_best": 1,
    "training.precision": "fp32", "training.device": "cpu", "data.split": "train",
    "model.dropout": 0, "model.attention_dropout": 0,
    "optimizer.kind": "sgd", "optimizer.lr": 0.02,  # Adam would make much of rounding
}  # fmt: skip
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
    settings = [f"{key}={value}" for key, value in {**SETTINGS, **more}.items()]
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


def losses(out: Path) -> list[tuple[int, Any]]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], [line["losses"], line["gradient_norm"]]) for line in lines]


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
    for (step, one), (again, other) in zip(losses(runs / "1" / recipe), losses(runs / name / recipe), strict=True):
        assert step == again
        assert other[0] == pytest.approx(one[0], rel=1e-4)
        assert other[1] == pytest.approx(one[1], rel=1e-4)
    weights, others = (load_file(runs / folder / recipe / "model" / "model.safetensors") for folder in ("1", name))
    for tensor, wanted in weights.items():
        torch.testing.assert_close(others[tensor], wanted, rtol=1e-3, atol=1e-5, msg=f"{recipe}: {tensor}")
