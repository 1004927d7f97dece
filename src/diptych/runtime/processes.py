"""Worker processes on this machine: how they start, get work and end."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import forkserver, get_all_start_methods, get_context, parent_process
from threading import Event, Lock, Thread, current_thread, main_thread
from typing import Any, TypeVar

import psutil

from diptych.runtime.errors import DiptychError, RecipeError

# More than the cores, or than the disk and this process can feed, gain little.
PROCESSES = min(4, os.cpu_count() or 1)

# Modules that take seconds to import, and start no threads when imported.
LOADED_ONCE = ("torch._dynamo", "torchvision", "pydantic", "rich.console")

Piece = TypeVar("Piece")
Made = TypeVar("Made")


_METHOD = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
_PLATFORM: Any = get_context(_METHOD)
_STARTING = Lock()


class WorkerProcess(_PLATFORM.Process):  # type: ignore[misc]  # fork server or spawning, by the platform
    """A process that does not import the program's `__main__`, which may be a script without a `__main__` guard.

    Python would run such a script anew in each process. So functions and classes of `__main__` are unknown there.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        main = sys.modules["__main__"]
        with _STARTING:
            place, spec = main.__dict__.pop("__file__", None), main.__spec__
            main.__spec__ = None
            try:
                return _PLATFORM.Process._Popen(process_obj)
            finally:
                main.__spec__ = spec
                if place is not None:
                    main.__file__ = place


class WorkerContext(type(_PLATFORM)):  # type: ignore[misc]
    """The platform's multiprocessing context, which starts workers."""

    Process = WorkerProcess


class PoolProcess(WorkerProcess):
    """A process of a pool, ended by SIGKILL: it ignores SIGTERM, so the pool would wait for it forever."""

    def terminate(self) -> None:
        self.kill()  # safe, since files are whole at any moment


class PoolContext(WorkerContext):
    """The context of pools."""

    Process = PoolProcess


def process_context() -> WorkerContext:
    """The context that starts processes: by a fork server that has loaded libraries once, else by spawning.

    Neither inherits the threads of this process. The server keeps the environment that it started in.
    """
    begin_loading()
    return WorkerContext()


def begin_loading(loaded: Sequence[str] = LOADED_ONCE) -> None:
    """Start the fork server, which loads these modules while this process does something else.

    `loaded` matters only when the server starts: torch alone is 0.4 GB.
    """
    # DDP warns if it searches for unused heads and there are none.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # oneDNN keeps code for 1,024 shapes, 0.4 GB if lengths vary between batches; with 64 it compiles much again.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
    if _METHOD == "spawn":
        return
    WorkerContext().set_forkserver_preload(list(loaded))
    if current_thread() is main_thread():
        # Signals go to the whole process group. The server and its children ignore them until they set a handler.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            forkserver.ensure_running()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def torchrun_processes() -> int:
    """The number of processes that torchrun started; 1 without it. Raises RecipeError for an incomplete environment."""
    environment = {name: os.environ.get(name) for name in ("WORLD_SIZE", "RANK", "MASTER_PORT")}
    if environment["WORLD_SIZE"] in (None, "1"):
        return 1
    faults = [
        f"{name} is {value!r}"
        for (name, value), least in zip(environment.items(), (1, 0, 1), strict=True)
        if value is None or not value.isdecimal() or int(value) < least
    ]
    faults += [] if os.environ.get("MASTER_ADDR") else ["MASTER_ADDR is not set"]
    if faults:
        torchrun = "python -m torch.distributed.run --nproc-per-node 2 -m diptych.cli ..."
        why = f"WORLD_SIZE is set for several processes, and {faults[0]}"
        raise RecipeError(f"{why}; torchrun sets it ({torchrun}); or unset all of it")
    return int(os.environ["WORLD_SIZE"])


def map_in_processes(
    work: Callable[[Piece], Made], pieces: Iterable[Piece], processes: int, loaded: Sequence[str] = LOADED_ONCE
) -> Generator[Made, None, None]:
    """Yield `work(piece)` for each piece, in their order, computed in N processes (for 1, in this one).

    `work`, pieces and results must be picklable. What a script or a notebook defines is computed in this process.
    `loaded` names the modules that `work` needs. At most two pieces per process are being computed or wait to be
    yielded. An error of `work` is raised here, and ends the iteration. Closing the iterator waits only for the pieces
    being computed.
    """
    if processes == 1 or b"__main__" in pickle.dumps(work):
        yield from map(work, pieces)
        return
    left = iter(pieces)
    begin_loading(loaded)
    pool = ProcessPoolExecutor(processes, PoolContext(), initializer=_begin)
    waiting: deque[Future[Made]] = deque()
    try:
        waiting.extend(pool.submit(work, piece) for piece in islice(left, 2 * processes))
        while waiting:
            made = waiting.popleft().result()
            waiting.extend(pool.submit(work, piece) for piece in islice(left, 1))
            yield made
    except BrokenProcessPool as error:
        why = f"one of {processes} processes was ended from outside, perhaps for lack of memory"
        raise DiptychError(f"{why}; repeat the command to resume (--processes 1 takes less memory)") from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """A list of one number: the peak memory of this process and all its children together, in MiB.

    It is measured every 3 seconds, since each measurement takes 0.1 s. On Linux shared memory counts once.
    """
    peak, ended = [_held()], Event()

    def watch() -> None:
        while not ended.wait(3):
            peak[0] = max(peak[0], _held())

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _held() -> float:
    total, own = 0, psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.uss)
    return total / 2**20


def _begin() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # they go to the whole group; the parent decides
        signal.signal(number, signal.SIG_IGN)
    _watch_parent()


def end_with_parent() -> None:
    """End this process as soon as its parent has ended, because the same command may already run again.

    This is safe, because files are complete at any moment.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _watch_parent()


def _watch_parent() -> None:
    Thread(target=_stop_after_parent, daemon=True).start()


def _stop_after_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
