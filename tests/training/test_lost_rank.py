"""A process of a run that dies is named as that, not as a fault of Diptych."""

import subprocess
import sys

import pytest

# Rank 1 goes after both have met; rank 0 then waits for it.
MEET = """
import os, sys
import torch
from torch import distributed
from diptych.training.devices import Ranks

rank, store = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
ranks = Ranks(rank, 2, torch.device("cpu"))
assert ranks.sum([1.0]) == [2.0]
if rank == 1:
    os._exit(9)
try:
    ranks.sum([1.0])
except RuntimeError as error:
    others = Ranks(0, 1, ranks.device).lost(error), ranks.lost(RuntimeError("shapes differ"))
    print(ranks.lost(error), *others, flush=True)
os._exit(0)
"""


@pytest.mark.timeout(120)
def test_a_lost_rank_is_known(tmp_path):
    command = [sys.executable, "-c", MEET]
    with subprocess.Popen([*command, "1", str(tmp_path / "store")]) as other:
        first = subprocess.run([*command, "0", str(tmp_path / "store")], capture_output=True, text=True, check=False)
        other.wait()
    assert (first.stdout, first.returncode) == ("True False False\n", 0), first.stderr
