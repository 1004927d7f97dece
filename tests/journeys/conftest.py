"""A small drawn world with ground-truth regions, made once, and the command line as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from diptych.loading.extract import extract
from diptych.loading.store import Store
from diptych.sources.storybook import record, scene
from diptych.vision.ground_truth import GroundTruth

SPLITS = {"train": 40, "val": 8, "test": 12}
# Two processes of one thread each: more threads than cores would make them crawl.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "store"
    records = [record(scene(0, split, index)) for split, count in SPLITS.items() for index in range(count)]
    eyes = GroundTruth.of(records)
    extract(records, eyes, folder)
    (folder / "eyes").mkdir()
    eyes.save(folder / "eyes")
    assert len(Store(folder)) == sum(SPLITS.values())
    return folder


def diptych(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    done = subprocess.run(command(arguments), capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done


def command(arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "diptych.cli", *map(str, arguments)]


def tiny(**more: object) -> list[str]:
    """Settings that make a run take seconds."""
    settings = {"model.width": 32, "model.heads": 2, "model.layers": 2, "model.ffn": 64, "training.batch": 8,
                "training.steps": 20, "training.validate_every": 10, "training.checkpoint_every": 5,
                "training.log_every": 1, "data.validation_records": 4} | more  # fmt: skip
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
