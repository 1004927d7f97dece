"""Each operation by which Python writes to the disk, counted; at a chosen one the process dies, or no room is left."""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
GROWS = ("mkdir", "fsync", "link", "symlink", "truncate", "ftruncate")  # what fails where no room is left
CHANGES = (*GROWS, "replace", "rename", "unlink", "remove", "rmdir")
COUNTED = ".attack.count"
Way = Literal["kill", "full"]


def install(at: int | None, way: Way = "kill") -> None:
    """Before the `at`-th operation the process is killed, or from it on no write has room. None: only counted, in
    `.attack.count` of the folder that the process begins in."""
    state = {"count": 0}
    counter, home = Path.cwd() / COUNTED, str(Path.cwd())

    def step(path: Any, grows: bool) -> None:
        state["count"] += 1
        if at is None:
            return
        if state["count"] == at and way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if state["count"] >= at and way == "full" and grows:
            named = () if isinstance(path, int) else (os.fspath(path),)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *named)

    def ours(path: Any) -> bool:
        if isinstance(path, int):
            return True
        name = os.path.abspath(os.fspath(path))
        name = name if isinstance(name, str) else os.fsdecode(name)
        return name.startswith(home) and ".attack." not in name

    _replace_open(step, ours)
    for name in CHANGES:
        _replace(name, step, ours)
    if at is None:
        import atexit

        atexit.register(lambda: counter.write_text(str(state["count"])))
        exit_now = os._exit

        def leave(code: int) -> None:
            at_end = os.open(counter, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(at_end, str(state["count"]).encode())
            exit_now(code)

        os._exit = leave  # type: ignore[assignment]


def _replace_open(step: Callable[[Any, bool], None], ours: Callable[[Any], bool]) -> None:
    plain, low = builtins.open, os.open

    def opened(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
        if set(mode) & set("wax+") and ours(file):
            step(file, True)
        return plain(file, mode, *given, **named)

    def opened_low(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & WRITES and ours(path):
            step(path, True)
        return low(path, flags, *given, **named)

    builtins.open = io.open = opened  # type: ignore[assignment]
    os.open = opened_low  # type: ignore[assignment]


def _replace(name: str, step: Callable[[Any, bool], None], ours: Callable[[Any], bool]) -> None:
    plain = getattr(os, name)

    def counted(path: Any, *given: Any, **named: Any) -> Any:
        if ours(path):
            step(path, name in GROWS)
        return plain(path, *given, **named)

    setattr(os, name, counted)
