"""Processes that die: SIGKILL at random instants, SIGTERM between two steps."""

import json
import multiprocessing
import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from tests.support import zygote
from tests.support.toy_trainer import killable, lines, toy_train, weights_hash

OPTIONS = {"steps": 120, "checkpoint_every": 5, "ema": 0.9, "validate_every": 20, "passes": 2, "threads": 1}
KILLS, IN_SAVES = 10, (2, 6)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    toy_train(folder, **OPTIONS)
    return folder


def start(folder: Path):
    # A fork of a process that has torch loaded but has run nothing: ten starts in the time of one.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["diptych.training", "torch._dynamo"])
    process = context.Process(target=killable, args=(str(folder), OPTIONS, 0.01))
    process.start()
    return process


def die(process) -> None:
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "the run ended before it was killed: lengthen it"


def saving(folder: Path) -> bool:
    root = folder / "checkpoints"
    return root.is_dir() and any(name.startswith(".step-") for name in os.listdir(root))


def kill_inside_a_save(folder: Path) -> None:
    """Tries again where the save was over before the signal came."""
    for _ in range(20):
        process = start(folder)
        deadline = time.monotonic() + 20
        while not saving(folder):
            assert time.monotonic() < deadline, "no save was seen"
        die(process)
        if saving(folder):
            return
    pytest.fail("no kill fell inside a save")


def test_killed_at_ten_random_instants(tmp_path, undisturbed):
    rng = Random(7)
    for kill in range(KILLS):
        if kill in IN_SAVES:
            kill_inside_a_save(tmp_path)
        else:
            process = start(tmp_path)
            time.sleep(rng.uniform(0, 0.5))
            die(process)
    process = start(tmp_path)
    process.join(60)
    assert process.exitcode == 0
    assert weights_hash(tmp_path) == weights_hash(undisturbed)
    assert lines(tmp_path) == lines(undisturbed)
    assert not saving(tmp_path)
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 121))


def test_sigterm_saves_and_exits_with_75(tmp_path, undisturbed):
    options = OPTIONS | {"folder": str(tmp_path), "pause": 0.02, "checkpoint_every": 1000, "validate_every": None}
    program = [Path(__file__).parents[2] / "support" / "toy_trainer.py", json.dumps(options)]
    with zygote.Popen(program, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 300  # a guard against hanging: a busy machine takes a minute to start Python
        while not (tmp_path / "metrics.jsonl").exists() or len(lines(tmp_path)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for _ in range(2):  # one from the batch system to the group, one from uv
            process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 75
    done = lines(tmp_path)[-1]["step"]
    assert f"stopped after step {done} of 120; the same command resumes {tmp_path}" in said
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == [f"step-{done:08d}"]
    toy_train(tmp_path, **OPTIONS | {"checkpoint_every": 1000, "validate_every": None})
    assert [x["losses"] for x in lines(tmp_path)] == [x["losses"] for x in lines(undisturbed)]
