"""The recipes for photographs at a tiny size: each system learns its task from what it pre-trained on, once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from diptych.systems import find_recipe
from experiments.photographs import CHAINS, Photographs, learn
from tests.support.scenes import scene_store

TINY = (
    "model.width=16", "model.heads=2", "training.precision=fp32", "training.batch=2",
    "training.steps=2", "training.validate_every=1", "training.checkpoint_every=1", "decoding.max_words=4",
)  # fmt: skip


@pytest.fixture
def plan(tmp_path: Path) -> Photographs:
    store = scene_store(tmp_path / "world", {"train": 6, "val": 2, "test": 3})
    plan = Photographs(str(store.folder), str(tmp_path / "out"), pictures=6, test=3, settings=TINY)
    plan.made()
    return plan


@pytest.mark.parametrize("system", ["unified-vlp", "tden"])
def test_a_system_pretrains_learns_its_task_and_is_scored_once(plan: Photographs, system: str) -> None:
    threads = torch.get_num_threads()
    row = learn(plan, system)
    torch.set_num_threads(threads)
    task = CHAINS[system]
    assert row["pre-training"]["steps"] == row[task]["steps"] == 2
    score = row[task]["CIDEr" if task == "caption" else "image retrieval R@1"]
    assert score["low"] <= score["value"] <= score["high"]
    assert "blind" in score
    before = {path: path.stat().st_mtime_ns for path in Path(plan.out).rglob("*")}
    assert learn(plan, system) == row
    assert {path: path.stat().st_mtime_ns for path in Path(plan.out).rglob("*")} == before, "nothing is done again"


def test_each_chain_is_of_recipes_for_photographs() -> None:
    for system, task in CHAINS.items():
        assert find_recipe(f"{system}/photos/pretrain").task == "pretrain"
        assert find_recipe(f"{system}/photos/{task}").task == task
