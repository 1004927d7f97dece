"""Work in processes of their own: when they end, their memory is given back whole."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def apart(work: Callable[Arguments, Made], *given: Arguments.args, **named: Arguments.kwargs) -> Made:
    """What `work` hands back; it and what it is given must be picklable. Its errors are raised here."""
    with workers(1) as pool:
        return pool.submit(work, *given, **named).result()


def workers(count: int) -> ProcessPoolExecutor:
    """Processes that end when this one does, so that nobody writes on into a folder that is gone on with."""
    spawn = get_context("spawn")
    return ProcessPoolExecutor(count, spawn, initializer=_end_with_parent, max_tasks_per_child=1)


def _end_with_parent() -> None:
    Thread(target=_stop_after_parent, daemon=True).start()


def _stop_after_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)  # a run in training saves itself first
