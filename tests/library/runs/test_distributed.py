"""Work in processes of their own."""

import json
import os
import pickle
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from diptych.runs.distributed import in_process, together, until_all_ended
from diptych.runs.folder import open_model
from diptych.runtime.errors import CheckpointError, DataError
from tests.support import zygote

PARENT = """
import sys
from diptych.runs.distributed import in_process
from work import work

if __name__ == "__main__":
    in_process(work, sys.argv[1])
"""

WORK = """
import time
from pathlib import Path

def work(path):
    while True:
        Path(path).write_text("alive")
        time.sleep(0.05)
"""

FAILING = """
import sys
from pathlib import Path
from diptych.runs.distributed import together
from diptych.runs.folder import open_model

if __name__ == "__main__":
    together(open_model, Path(sys.argv[1]), processes=2)
"""


@pytest.mark.slow
def test_the_work_is_done_elsewhere_and_handed_back() -> None:
    assert in_process(os.getpid) != os.getpid()
    assert in_process(pow, 7, 2) == 49


@pytest.mark.slow
def test_its_error_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a model folder"):
        in_process(open_model, tmp_path)


def test_an_error_keeps_what_it_is_about_on_its_way() -> None:
    arrived = pickle.loads(pickle.dumps(DataError("a picture is cut short", key="p7")))
    assert str(arrived) == "a picture is cut short (record p7)"
    assert arrived.key == "p7"


@pytest.mark.slow
def test_work_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script, sign = tmp_path / "parent.py", tmp_path / "sign"
    script.write_text(PARENT)
    (tmp_path / "work.py").write_text(WORK)
    with zygote.Popen([script, sign]) as parent:
        _until(sign.exists)
        parent.kill()

    def quiet() -> bool:
        sign.unlink(missing_ok=True)
        time.sleep(0.5)
        return not sign.exists()

    _until(quiet)


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300  # against hanging: a busy machine takes long to start Python
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_detector_is_trained_by_two_processes_as_one(tmp_path: Path) -> None:
    from diptych_world.demo.detector import DetectorRecipe, train_detector

    recipe = DetectorRecipe.of(2, seed=0)
    together(train_detector, recipe, tmp_path / "two", processes=2)
    assert (tmp_path / "two" / "detector" / "detector.json").is_file()
    steps = [line for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines() if '"losses"' in line]
    assert steps
    assert json.loads(steps[-1])["step"] == 2


@pytest.mark.slow
def test_the_message_of_a_process_that_fails_is_shown(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"  # processes write where the first one that was begun does
    script.write_text(FAILING)
    ended = zygote.run([script, tmp_path])
    assert "TrainingError: a training process failed with exit code 1; see its error above" in ended.stderr
    assert f"diptych: {tmp_path} is not a model folder" in ended.stderr


class Ending(BaseProcess):
    """Ends right after the first look at it."""

    exitcode = 0
    looks = 0

    def is_alive(self) -> bool:
        self.looks += 1
        return self.looks == 1

    @property
    def sentinel(self) -> int:
        here, there = os.pipe()
        os.close(there)
        return here

    def join(self, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...


@pytest.mark.timeout(20)
def test_ranks_that_end_between_two_looks_are_not_waited_for() -> None:
    rank = Ending()
    assert until_all_ended([rank]) == [rank]
