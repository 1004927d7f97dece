"""A small drawn world with a detector that has learnt nothing, and settings of a model that trains in a second."""

from pathlib import Path
from typing import Any

import pytest
import torch

from diptych.api.run import Run
from diptych.api.training import finetune
from tests.support import toy

SPLITS = {"train": 24, "val": 4, "test": 6}
TINY: dict[str, Any] = {
    "model.width": 16, "model.layers": 1, "model.heads": 2, "model.ffn": 32, "model.max_regions": 8,
    "model.positions": 40, "training.validate_every": 4, "training.log_every": 2, "training.device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from diptych_world.files import write

    folder = tmp_path_factory.mktemp("drawn") / "world"
    folder.mkdir()
    write(folder, SPLITS, seed=0, processes=1)
    return folder


@pytest.fixture(scope="session")
def detector(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("detector") / "detector"
    with torch.random.fork_rng():
        found = toy.detector(64)
    folder.mkdir()
    found.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def captioner(world: Path, detector: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("captioner") / "run"
    recipe = "unified-vlp/small/caption"
    return finetune("caption", world, recipe=recipe, out=out, detector=detector, steps=4, batch_size=8, settings=TINY)
