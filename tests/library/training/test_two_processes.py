"""Two gloo processes equal one process that accumulates as many parts."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support import zygote
from tests.support.toy_trainer import ToyModel, lines, toy_train

FOUR = {"ema": 0.9, "validate_every": 3, "average_best": 2, "checkpoint_every": 3, "steps": 6}
KINDS = ("ddp", "fsdp")
SCENARIOS = {  # name -> arguments of one run; the one process takes as many parts as the two have together
    "one pass": {"passes": 1, "micro_batch": 4},
    "two passes, accumulated": {"passes": 2, "micro_batch": 1},
    "sgd": {"micro_batch": 4, "optimizer": {"kind": "sgd"}},
    "muon": {"micro_batch": 4, "optimizer": {"kind": "muon", "muon_params": ["layers."]}},
    "bert": {"micro_batch": 4, "optimizer": {"kind": "bert_adam", "clip": None, "clip_each": 0.1}},
}


STOPPED = [
    {"folder": "silent ddp", "silent": True, "distributed": "ddp"},
    {"folder": "silent fsdp", "silent": True, "distributed": "fsdp"},
    {"folder": "bad", "bad": True, "goes_on": True},
    {"folder": "interrupted", "interrupted": True, "validate_every": 1, "goes_on": True},
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """All runs in one start."""
    root = tmp_path_factory.mktemp("two")
    runs = []
    for name, options in SCENARIOS.items():
        toy_train(root / name, **FOUR | options | {"micro_batch": min(options["micro_batch"], 2)})
        for kind in KINDS:
            shorten(root / name, root / f"{name}, then {kind}")
            for folder in (f"{name}, {kind}", f"{name}, then {kind}"):
                runs.append({"folder": folder, "distributed": kind, **FOUR, **options})
    program = Path(__file__).parents[2] / "support" / "toy_trainer.py"
    ended = zygote.ranks([program, *map(json.dumps, [*runs, *STOPPED])], 2, os.environ, root)
    said = "".join(done.stderr for done in ended)
    assert [done.returncode for done in ended] == [0, 0], said[-4000:]
    (root / "said").write_text(said)
    for name, options in SCENARIOS.items():
        for kind in KINDS:
            shorten(root / f"{name}, {kind}", root / f"{kind}, then {name}")
            toy_train(root / f"{kind}, then {name}", **FOUR | options | {"micro_batch": min(options["micro_batch"], 2)})
    return root


def shorten(whole: Path, copy: Path) -> None:
    """A copy of a run as it was after step 3."""
    shutil.copytree(whole, copy)
    shutil.rmtree(copy / "checkpoints" / "step-00000006")


@pytest.mark.parametrize("how", ["{name}, {kind}", "{name}, then {kind}", "{kind}, then {name}"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_equal_one_process(folders, name, kind, how):
    """Weights, their average, the optimizer's state and the log, with dropout; also if the number of processes changes
    half-way."""
    found = folders / how.format(name=name, kind=kind)
    for file in ("checkpoints/step-00000006/model", "checkpoints/step-00000006/optimizer", "weights"):
        one, two = (load_file(folder / f"{file}.safetensors") for folder in (folders / name, found))
        assert one.keys() == two.keys()
        for tensor in one:
            torch.testing.assert_close(two[tensor], one[tensor], rtol=1e-4, atol=1e-6, msg=f"{file}: {tensor}")
    for one, two in zip(lines(folders / name), lines(found), strict=True):
        assert one["losses"] == pytest.approx(two["losses"], rel=1e-4)
        assert one["gradient_norm"] == pytest.approx(two["gradient_norm"], rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_predict_changes_nothing(folders, kind):
    found = load_file(folders / f"silent {kind}" / "weights.safetensors")
    for name, first in ToyModel().named_parameters():
        assert torch.equal(found[name], first), name


def test_a_bad_loss_on_one_rank_ends_all(folders):
    said = (folders / "said").read_text()
    place = "step 2, pass 1, learning rate 0.0166667"
    assert f"TrainingError on rank 1: the loss of word is not finite ({place}; records: toy/6, toy/7)" in said
    other = f"{place}; in a micro-batch of another process"
    assert f"TrainingError on rank 0: the loss of word is not finite ({other})" in said


def test_a_signal_to_one_rank_stops_all(folders):
    said = (folders / "said").read_text()
    for rank in (0, 1):
        assert f"Stopped on rank {rank}: stopped after step 3 of 6" in said
    assert sorted(p.name for p in (folders / "interrupted" / "checkpoints").iterdir())[-1] == "step-00000003"
