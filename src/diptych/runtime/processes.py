"""Worker processes on this machine: start them, give them work, and end them."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import forkserver, get_all_start_methods, get_context, parent_process
from threading import Event, Lock, Thread, current_thread, main_thread
from typing import Any, TypeVar

import psutil

from diptych.runtime.errors import DiptychError, RecipeError

# Number of worker processes. More processes than cores gain little. Above 4, the disk or the parent is the bottleneck.
PROCESSES = min(4, os.cpu_count() or 1)

# The fork server imports these modules once: they take seconds to import, and importing them starts no threads.
LOADED_ONCE = ("torch", "torch._dynamo", "torchvision", "pydantic", "rich.console")

Piece = TypeVar("Piece")
Made = TypeVar("Made")


_METHOD = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
_PLATFORM: Any = get_context(_METHOD)
_STARTING = Lock()


class WorkerProcess(_PLATFORM.Process):  # type: ignore[misc]  # fork server or spawn
    """A process that does not import the main script, which may have no `if __name__ == "__main__"` guard.

    Python would run such a script again in each process. So functions and classes defined in `__main__` are unknown in
    the process.
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
    """The platform's multiprocessing context; it starts processes of the class WorkerProcess."""

    Process = WorkerProcess

    def Lock(self) -> Any:
        """Return a lock, the first thing that processes share. Raises DiptychError without shared memory."""
        try:
            return super().Lock()
        except OSError as error:
            why = f"processes need shared memory, but /dev/shm cannot be written ({error.strerror}); make it writable"
            raise DiptychError(f"{why}, or pass --processes 1 (training.loading_processes=0 in training)") from error


class PoolProcess(WorkerProcess):
    """A process of a pool. It ignores SIGTERM, so the pool must end it with SIGKILL."""

    def terminate(self) -> None:
        self.kill()  # safe, because files are written atomically


class PoolContext(WorkerContext):
    """A multiprocessing context that starts processes of the class PoolProcess."""

    Process = PoolProcess


def process_context() -> WorkerContext:
    """Return the context that starts processes.

    It uses a fork server, which has already loaded the libraries, or if the platform has none, spawning.

    New processes do not inherit threads of this process. With a fork server, they get the environment variables from
    when the server started.
    """
    begin_loading()
    return WorkerContext()


def begin_loading(loaded: Sequence[str] = LOADED_ONCE) -> None:
    """Start the fork server, which loads modules while this process continues.

    `loaded`: the modules to load. It has an effect only if the server is not running yet. Load few: torch alone takes
    0.4 GB.
    """
    # Hide the warning of DDP that it searched for unused parameters and found none.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # oneDNN caches 1,024 kernels by default, which takes up to 0.4 GB if lengths vary. With 64, it recompiles often.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
    if _METHOD == "spawn":
        return
    WorkerContext().set_forkserver_preload(list(loaded))
    if current_thread() is main_thread():
        # Ctrl-C reaches the whole process group. The fork server and its children must ignore it. They inherit the
        # handlers that are set here.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            forkserver.ensure_running()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def torchrun_processes() -> int:
    """Return the number of processes that torchrun started, or 1 without torchrun.

    Raises RecipeError if its environment variables are incomplete.
    """
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
        torchrun = "python -m torch.distributed.run --nproc-per-node 2 -m diptych ..."
        why = f"WORLD_SIZE is set for several processes, and {faults[0]}"
        raise RecipeError(f"{why}; start with torchrun ({torchrun}), or unset WORLD_SIZE")
    return int(os.environ["WORLD_SIZE"])


def map_in_processes(
    work: Callable[[Piece], Made], pieces: Iterable[Piece], processes: int, loaded: Sequence[str] | None = None
) -> Generator[Made, None, None]:
    """Yield `work(piece)` for each piece, in order, computed in `processes` processes.

    `work`, pieces and results must be picklable. This process computes them itself if `processes` is 1, or if `work` is
    defined in a script or notebook. `loaded`: modules that `work` needs; None: those of LOADED_ONCE that this process
    has loaded (to import all takes longer than small work). At most two pieces per process are in progress or wait to
    be yielded. An error of `work` is raised here, and ends the iteration. Closing the iterator waits only for pieces in
    progress.
    """
    if processes == 1 or b"__main__" in pickle.dumps(work):
        yield from map(work, pieces)
        return
    left = iter(pieces)
    begin_loading([one for one in LOADED_ONCE if one in sys.modules] if loaded is None else loaded)
    pool = ProcessPoolExecutor(processes, PoolContext(), initializer=_begin)
    # Signals interrupt the main thread alone. In another thread, no worker is started without being noted in the pool,
    # which would wait for ever at its end.
    feeder = ThreadPoolExecutor(1)
    waiting: deque[Future[Made]] = deque()
    try:
        waiting.extend(feeder.submit(pool.submit, work, piece).result() for piece in islice(left, 2 * processes))
        while waiting:
            made = waiting.popleft().result()
            waiting.extend(feeder.submit(pool.submit, work, piece).result() for piece in islice(left, 1))
            yield made
    except BrokenProcessPool as error:
        why = f"one of {processes} processes was killed, perhaps because memory ran out"
        raise DiptychError(f"{why}; repeat the command to resume (--processes 1 needs less memory)") from error
    finally:
        feeder.shutdown()
        pool.shutdown(cancel_futures=True)


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Measure the peak memory of this process and all its children together.

    The context yields a list of one number, in MiB.

    It is measured every 3 seconds, because a measurement takes 0.1 s. On Linux, shared memory counts once.
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
        with suppress(psutil.Error):  # a process that has ended has no memory to count
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.uss)
    return total / 2**20


def _begin() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C reaches workers too, but only the parent stops them
        signal.signal(number, signal.SIG_IGN)
    _watch_parent()


def end_with_parent() -> None:
    """End this process as soon as its parent has ended. Otherwise it could still write when the command is run again.

    This is safe, because files are written atomically.
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
