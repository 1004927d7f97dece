"""A process of a run that dies is named as that, not as a fault of Diptych."""

import socket
import subprocess

import pytest
import torch

from diptych.runtime.errors import TrainingError
from diptych.training import ranks
from tests.support import zygote

# Rank 1 goes after both have met; rank 0 then waits for it.
MEET = """
import os, sys
import torch
from torch import distributed
from diptych.training.ranks import Ranks

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
    with zygote.Popen(["-c", MEET, 1, tmp_path / "store"]):
        first = zygote.run(["-c", MEET, 0, tmp_path / "store"])
    assert (first.stdout, first.returncode) == ("True False False\n", 0), first.stderr


# Waits for the others; one of them is gone before they have met.
FORM = """
import os, signal, sys
from threading import Timer
import torch
from diptych.cli.app import _terminated
from diptych.runtime.errors import Terminated, TrainingError
from diptych.training.ranks import join_ranks, leave

os.environ |= {"RANK": sys.argv[1], "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[2]}
signal.signal(signal.SIGTERM, _terminated)
Timer(1.0, lambda: print("waits", flush=True)).start()
try:
    with join_ranks(torch.device("cpu")):
        print("met", flush=True)
except Terminated:
    leave(75)
except TrainingError as error:
    print(error, flush=True)
    leave(1)
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("rank", ["0", "1"])
def test_who_waits_for_a_lost_rank_hears_sigterm(rank: str) -> None:
    """torchrun kills what does not end within 30 seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    other = zygote.Popen(["-c", FORM, 1 - int(rank), port], stdout=subprocess.DEVNULL)
    other.kill()  # before it has met anyone
    other.wait()
    with zygote.Popen(["-c", FORM, rank, port], stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waits\n"
        waiting.terminate()
        try:
            assert waiting.wait(15) == 75
        finally:
            waiting.kill()


def test_processes_that_do_not_meet_are_told_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> None:
        raise RuntimeError("The server socket has failed to listen")

    monkeypatch.setattr(ranks.distributed, "init_process_group", fails)
    monkeypatch.setattr(ranks, "_left", [])
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(TrainingError, match=r"did not connect at here:29500 \(The server socket has failed to listen"),
        ranks.join_ranks(torch.device("cpu")),
    ):
        pass
