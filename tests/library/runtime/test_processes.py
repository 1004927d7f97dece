"""Work shared out among processes. What they do has to be importable by them, so it is plain functions of others."""

import errno
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import synchronize
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil
import pytest

from diptych.runtime import processes
from diptych.runtime.errors import DataError, DiptychError
from diptych.runtime.processes import map_in_processes
from diptych.vision.pictures import open_picture
from tests.support import zygote


def test_results_come_in_the_order_of_the_pieces() -> None:
    sizes = [2000, 3, 1000, 1, 500, 2, 4]  # the first take longest
    assert list(map_in_processes(math.factorial, sizes, 2)) == [math.factorial(size) for size in sizes]


def test_one_process_is_this_one() -> None:
    assert list(map_in_processes(lambda number: os.getpid() + number, [0, 1], 1)) == [os.getpid(), os.getpid() + 1]
    assert list(map_in_processes(math.sqrt, [], 1)) == []


def test_no_more_is_asked_for_than_is_under_way() -> None:
    asked: list[int] = []

    def pieces() -> Iterator[int]:
        for number in range(100):
            asked.append(number)
            yield number

    with closing(map_in_processes(math.sqrt, pieces(), 2)) as made:
        next(made)
    assert len(asked) == 5


def test_an_error_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no image at"):
        list(map_in_processes(open_picture, [tmp_path / "none.png"], 2))


def test_a_process_that_was_killed_is_named() -> None:
    with pytest.raises(DiptychError, match=r"one of 2 processes was killed.*--processes 1"):
        list(map_in_processes(os._exit, [9], 2))


@pytest.mark.timeout(120)
def test_a_signal_while_a_process_is_started_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the start, and before the pool has noted the process."""
    started, start = list[int](), ForkServerProcess.start

    def interrupted(process: ForkServerProcess) -> None:
        start(process)
        started.append(process.pid or 0)
        if len(started) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    monkeypatch.setattr(ForkServerProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), closing(map_in_processes(time.sleep, [0.3] * 8, 2)) as made:
        list(made)
    assert len(started) == 2
    assert not any(map(psutil.pid_exists, started))


def test_processes_without_shared_memory_are_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(synchronize._multiprocessing, "SemLock", refuse)  # type: ignore[attr-defined]
    with pytest.raises(DiptychError, match=r"/dev/shm cannot be written \(Read-only file system\); .*--processes 1"):
        list(map_in_processes(abs, [1], 2))
    assert list(map_in_processes(abs, [-1], 1)) == [1]


def test_what_a_pool_ends_is_killed() -> None:
    """A broken pool ends the others and waits for them; they ignore SIGTERM, and one may be sending its result."""
    sleeping = processes.PoolContext().Process(target=time.sleep, args=(600,))
    sleeping.start()
    sleeping.terminate()
    sleeping.join(60)
    assert sleeping.exitcode == -signal.SIGKILL


def test_a_process_of_a_pool_is_at_no_moment_ended_by_a_signal_to_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[object] = []
    monkeypatch.setattr(processes.signal, "signal", lambda _, handler: handlers.append(handler))
    monkeypatch.setattr(processes, "_watch_parent", lambda: None)
    processes._begin()
    assert handlers == [signal.SIG_IGN, signal.SIG_IGN]


WITHOUT_A_GUARD = """
import math, os
from diptych.runtime.processes import map_in_processes

def own(number):
    return number + 1, os.getpid()

print("once", list(map_in_processes(math.factorial, range(5), 2)))
print([number for number, process in map_in_processes(own, range(5), 2) if process == os.getpid()])
"""


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Processes do not run the script again; what it defines itself is computed in its own process."""
    (script := tmp_path / "script.py").write_text(WITHOUT_A_GUARD)
    done = zygote.run([script], timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "once [1, 1, 2, 6, 24]\n[1, 2, 3, 4, 5]\n"


HELD_BY_A_GRANDCHILD = """
import subprocess, sys
from diptych.runtime.processes import peak_memory

def run(code):
    subprocess.run([sys.executable, "-c", code], check=True)

hold = "held = b'x' * (300 * 2**20); import time; time.sleep(5)"  # longer than between two looks
for code in ("pass", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"):
    with peak_memory() as peak:
        run(code)
    print(peak[0])
"""


def test_memory_is_that_of_all_processes_together() -> None:
    """A process that another one started is counted too; `resource` knows nothing of it while it lives.

    Measured in an interpreter of its own: what pytest holds comes and goes.
    """
    command = [sys.executable, "-c", HELD_BY_A_GRANDCHILD]  # an interpreter: its memory
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    without, held = (float(line) for line in told.stdout.split())
    assert 0 < without < without + 290 < held < without + 600
