"""Negatives come from the batches of all processes: two of them equal one that has the joined batch."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support import toy, zygote

RUNS: list[dict[str, Any]] = [
    {"form": form, "two_pass": two_pass, "distributed": distributed}
    for form, two_pass, distributed in (
        ("paper", None, "ddp"),
        ("older", None, "ddp"),
        ("official", "A", "ddp"),
        ("official", None, "fsdp"),
    )
]
# A process whose records cannot be read holds nobody up, and its borrowed sample is nobody's wrong pair.
RUNS += [RUNS[0] | {"hurt": True}, RUNS[3] | {"hurt": True}]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs of two processes in one start, and all of one in another process."""
    root = tmp_path_factory.mktemp("two")
    program, top = Path(__file__).parents[2] / "support" / "two_ranks.py", Path(__file__).parents[3]
    for count, name in enumerate(("one", "two"), 1):
        told = [json.dumps({**run, "folder": str(root / f"{name}{n}")}) for n, run in enumerate(RUNS)]
        ended = zygote.ranks([program, *told], count, os.environ | {"TESTS_OF": str(top)})
        assert not any(done.returncode for done in ended), "\n\n".join(done.stderr[-4000:] for done in ended)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(RUNS)), ids=["-".join(map(str, run.values())) for run in RUNS])
def test_two_processes_equal_one_with_the_joined_batch(folders, number):
    one, two = (load_file(folders / f"{name}{number}" / "weights.safetensors") for name in ("one", "two"))
    first = toy.tden(std=0.1).state_dict()
    assert one.keys() == two.keys()
    for name, wanted in one.items():
        torch.testing.assert_close(two[name], wanted, rtol=1e-4, atol=2e-6, msg=lambda m, name=name: f"{name}: {m}")
    moved = [name for name in one if not torch.equal(one[name], first[name])]
    assert "heads.similarity.text.out.weight" in moved
    assert "objects.0.attention.qkv.weight" in moved
