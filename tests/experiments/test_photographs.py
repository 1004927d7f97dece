"""The recipes for photographs at a tiny size: each system learns its task from what it pre-trained on, once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from diptych.data.extract.extract import extract
from diptych.systems import find_recipe
from diptych.vision.detectors.ground_truth import GroundTruth
from diptych_world.book import record
from diptych_world.layout import scene
from experiments.photographs import CHAINS, Photographs, learn

TINY = (
    "model.width=16", "model.heads=2", "training.precision=fp32", "training.batch=2",
    "training.steps=2", "training.validate_every=1", "training.checkpoint_every=1", "decoding.max_words=4",
)  # fmt: skip


@pytest.fixture
def plan(tmp_path: Path) -> Photographs:
    splits = {"train": 6, "val": 2, "test": 3}
    records = [record(scene(0, split, index)) for split, count in splits.items() for index in range(count)]
    store = tmp_path / "world"
    extract(records, GroundTruth.of(records), store)
    plan = Photographs(str(store), str(tmp_path / "out"), pictures=6, test=3, settings=TINY)
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
