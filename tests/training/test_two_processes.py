"""Two gloo processes under torchrun equal one process that accumulates as many parts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from toy import toy_train

FOUR = {"ema": 0.9, "validate_every": 3, "average_best": 2, "checkpoint_every": 3, "steps": 6}
SCENARIOS = {  # name -> arguments of one run; the one process takes as many parts as the two have together
    "one pass": {"passes": 1, "micro_batch": 4},
    "two passes, accumulated": {"passes": 2, "micro_batch": 1},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """All runs in one torchrun, as starting one takes longest."""
    root = tmp_path_factory.mktemp("two")
    runs = [
        {"folder": str(root / f"{name}, {kind}"), "distributed": kind, **FOUR, **options}
        for name, options in SCENARIOS.items()
        for kind in ("ddp", "fsdp")
    ]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = Path(__file__).with_name("toy.py")
    done = subprocess.run(
        [*command, program, *map(json.dumps, runs)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for name, options in SCENARIOS.items():
        toy_train(root / name, **FOUR | options | {"micro_batch": min(options["micro_batch"], 2)})
    return root


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_equal_one_process(folders, name, kind):
    """Weights, their average, the optimizer's state, the log; dropout is on."""
    for file in ("checkpoints/step-00000006/model", "checkpoints/step-00000006/optimizer", "weights"):
        one = load_file(folders / name / f"{file}.safetensors")
        two = load_file(folders / f"{name}, {kind}" / f"{file}.safetensors")
        assert one.keys() == two.keys()
        for tensor in one:
            torch.testing.assert_close(two[tensor], one[tensor], rtol=1e-4, atol=1e-6)
