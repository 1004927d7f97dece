"""A step asks nothing of a GPU that it would have to wait for, so that the next one is given to it meanwhile."""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import diptych
from diptych.models import heads, rows, transformer
from diptych.training import trainer
from diptych.training.feeding import BatchPart
from diptych.training.step import PendingStep, Stepper
from tests.golden import losses
from tests.golden.losses import SETTINGS, Runs, read

# What a GPU has to have finished all its work for: a number of the host's, or a size that depends on values.
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique", "multinomial")
GOLDEN = read()
RECIPES = [
    *(f"{system}/small/pretrain" for system in ("unified-vlp", "vl-bert", "image-bert", "tden", "xgpt")),
    *(f"vl-bert/small/{task}" for task in ("vqa", "referring", "nlvr", "vcr")),
]


class Waits(TorchDispatchMode):
    """Counts such operations; an index of booleans is one."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").split(".")[0]
        of_booleans = name.strip("_") in ("index", "index_put") and any(
            isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if name.strip("_") in {one.strip("_") for one in WAITING} or of_booleans:
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


def test_such_operations_are_counted() -> None:
    with Waits() as waits:
        x = torch.arange(4.0)
        x[x > 1].sum().item()
        x[torch.tensor([0, 2])] = 1
        assert waits.found == {"index": 1, "_local_scalar_dense": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("waits"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_step_waits_for_nothing(recipe: str, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, found, device = Stepper.run, Counter[str](), "cuda" if torch.cuda.is_available() else "cpu"

    def counted(stepper: Stepper, step: int, parts: list[BatchPart], *given: Any) -> PendingStep:
        elsewhere = pickle.loads(pickle.dumps(stepper.maker))((step, 0))  # as another process makes it
        assert (elsewhere.keys, elsewhere.counts) == (parts[0].keys, parts[0].counts)
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        try:
            with Waits() as waits:
                return steps(stepper, step, parts, *given)
        finally:
            found.update(waits.found)
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(Stepper, "run", counted)
    monkeypatch.setattr(trainer, "READ_LATE", ("cuda", "cpu"))
    monkeypatch.setattr(rows, "CUTTING", ())
    monkeypatch.setattr(losses, "STEPS", 2)
    monkeypatch.setattr(losses, "SETTINGS", {**SETTINGS, "training.device": device})
    for module in (transformer, heads):
        monkeypatch.setattr(module, "FUSED", ("cuda", "cpu"))
    first = json.loads((runs._run(recipe) / "metrics.jsonl").read_text().splitlines()[0])
    assert not found
    # The attention and the sizes of a GPU, and its own arithmetic perhaps, beside those of a CPU.
    for kind, name in (("loss", "total"), ("gradient_norm", "gradient_norm")):
        assert first[name] == pytest.approx(GOLDEN[recipe][kind][0], rel=1e-4)


def test_no_numbers_are_sent_and_waited_for() -> None:
    """torch.tensor(..., device=) and Tensor.new_tensor wait for the device; `devices.to_device` does not."""
    folder = Path(diptych.__file__).parent
    for part in ("core", "objectives", "models"):
        for path in (folder / part).rglob("*.py"):
            waiting = re.findall(r"torch\.tensor\([^\n]*device=|\.new_tensor\(\[\d", path.read_text("utf-8"))
            assert not waiting, path
