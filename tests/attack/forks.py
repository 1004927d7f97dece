"""A verb run in a fork of this process, which has imported everything: a tenth of a second and not five.

Nothing here may compute with torch before a fork: its threads would not be there in the child.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.util import _exit_function
from pathlib import Path

TOO_LONG = 300.0  # seconds, after which an attempt is called hung
HUNG = -99
AWAY = 0.5  # seconds between two looks, of which most went by elsewhere
FAULTS = ("Traceback", "fault of Diptych", "Fatal Python error")


@dataclass(frozen=True)
class Ended:
    """`code` is below 0 for a signal, HUNG for one that never ended."""

    code: int
    out: str
    error: str

    @property
    def clean(self) -> bool:
        """Ended with a result or with a sentence: no traceback, no unforeseen error, no crash."""
        return self.code in (0, 1, 2, 75, 130) and not any(sign in self.out + self.error for sign in FAULTS)

    @property
    def last(self) -> str:
        """The last line of what it complained."""
        lines = self.error.strip().splitlines()
        return lines[-1][:200] if lines else "no word"


def import_all() -> None:
    """What verbs import late, so that each fork has it already."""
    import torch

    torch.set_num_threads(1)


def attempt(
    folder: Path,
    arguments: tuple[str, ...],
    prepare: Callable[[], object] | None = None,
    after: float | None = None,
    signals: Sequence[int] = (signal.SIGKILL,),
    group: bool = True,
    seconds: float = TOO_LONG,
) -> Ended:
    """`diptych ARGUMENTS` in `folder`, or nothing where there are none; `prepare` runs in the child first.

    `after` so many seconds `signals` come, to its group or to the process alone. It is HUNG after `seconds`.
    """
    child = begin(folder, arguments, prepare)
    if after is not None and not wait(child, after):
        for number in signals:
            (os.killpg if group else os.kill)(child.pid, number)
    if not wait(child, seconds):
        os.killpg(child.pid, signal.SIGKILL)
        wait(child, TOO_LONG)
        child.code = HUNG
    return ended(child)


@dataclass
class Child:
    """A process that was begun, with the files of its output; `code` once it has ended."""

    pid: int
    out: Path
    error: Path
    code: int | None = None


def begin(
    folder: Path, arguments: tuple[str, ...], prepare: Callable[[], object] | None = None, name: str = ""
) -> Child:
    out, error = folder / f".attack{name}.out", folder / f".attack{name}.err"
    pid = os.fork()
    if pid == 0:
        _be(folder, arguments, prepare, out, error)
    return Child(pid, out, error)


def wait(child: Child, seconds: float) -> bool:
    """Whether it has ended by then. While this process was itself stopped, or got no core, no time goes by."""
    looked = time.monotonic()
    deadline = looked + seconds
    while child.code is None:
        now = time.monotonic()
        deadline, looked = deadline + (now - looked if now - looked > AWAY else 0.0), now
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if pid:
            child.code = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > deadline:
            return False
        else:
            time.sleep(0.002)
    return True


def ended(child: Child) -> Ended:
    assert child.code is not None
    texts = [path.read_text("utf-8", "replace") if path.exists() else "" for path in (child.out, child.error)]
    for path in (child.out, child.error):
        path.unlink(missing_ok=True)
    return Ended(child.code, *texts)


def _be(folder: Path, arguments: tuple[str, ...], prepare: Callable[[], object] | None, out: Path, error: Path) -> None:
    """The child: its own group, its own output, and never back to the caller's code."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        for path, number in ((out, 1), (error, 2)):
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # where a test runner has put its own
        for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background ignores the first
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        sys.argv = ["diptych", *arguments]
        if prepare is not None:
            prepare()
        if arguments:
            from diptych import cli

            cli.main()
        code = 0
    except SystemExit as left:
        code = int(left.code or 0) if not isinstance(left.code, str) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        _exit_function()  # what multiprocessing does at an exit: temporary folders go
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
