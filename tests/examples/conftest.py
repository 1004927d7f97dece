"""UNITER in Diptych's tables for these tests, and the golden vectors of the authors' code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import uniter
from safetensors.torch import load_file
from torch import Tensor
from uniter.checkpoint import import_uniter
from uniter.model import Uniter

from diptych.core import Batch, Regions, Sample, collate
from diptych.models import HEADS
from diptych.models.weights import ImportReport
from diptych.systems import OBJECTIVES, RECIPES, SYSTEMS
from tests.support.checkpoints import load_checkpoint

GIVEN = Path(os.environ.get("DIPTYCH_PARITY", "")) / "uniter"  # further sets in the same form
SETS = [Path(__file__).parent / "uniter_data", *([GIVEN] if GIVEN.is_dir() else [])]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    tables: list[dict[str, Any]] = [SYSTEMS, OBJECTIVES, RECIPES, HEADS]
    before = [dict(table) for table in tables]
    uniter.register()
    yield
    for table, values in zip(tables, before, strict=True):
        table.clear()
        table.update(values)


@dataclass
class Official:
    """One set; sizes come from its meta.json."""

    folder: Path
    config: dict[str, int]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]

    def keys(self, name: str) -> set[str]:
        return set(load_file(self.folder / f"{name}.safetensors"))

    def model(self, name: str) -> tuple[Uniter, ImportReport]:
        path, vocabulary = self.folder / f"{name}.safetensors", self.folder / "vocab.txt"
        model, report = load_checkpoint(Uniter, import_uniter, path, vocabulary, heads=self.config["heads"])
        return model.eval(), report

    def sample(self, number: int, hidden: bool = False) -> Sample:
        own = {name.split(".", 1)[1]: value for name, value in self.inputs.items() if name.startswith(f"{number}.")}
        regions = Regions(own["boxes"], torch.ones(len(own["boxes"])), (100, 100), own["classes"], own["features"])
        regions = regions.hide(own["hidden"]) if hidden else regions
        return Sample(str(number), str(number), regions, own["text"], matched=bool(own["matched"]))

    def batch(self, hidden: bool = False) -> Batch:
        return collate([self.sample(number, hidden) for number in range(4)])


@pytest.fixture(params=SETS, ids=["committed", "given"][: len(SETS)])
def official(request: pytest.FixtureRequest) -> Official:
    folder: Path = request.param
    config = json.loads((folder / "meta.json").read_text())["config"]
    inputs, outputs = (load_file(folder / f"{name}.safetensors") for name in ("inputs", "outputs"))
    return Official(folder, config, inputs, outputs)
