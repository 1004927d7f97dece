"""Pieces of work shared out among processes of this machine, their results in the order of the pieces."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import forkserver, get_all_start_methods, get_context, parent_process
from threading import Event, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, TypeVar

import psutil

from diptych.runtime.errors import DiptychError, RecipeError

if TYPE_CHECKING:  # Windows has no ForkServerContext
    from multiprocessing.context import ForkServerContext, SpawnContext

PROCESSES = min(
    4, os.cpu_count() or 1
)  # more than there are cores, or than the disk and this process feed, gain little

# What takes seconds to load, and of which no thread runs yet when it has been.
LOADED_ONCE = ("torch._dynamo", "torchvision", "pydantic", "rich.console")

Piece = TypeVar("Piece")
Made = TypeVar("Made")


def process_context(loaded: Sequence[str] = LOADED_ONCE) -> ForkServerContext | SpawnContext:
    """How processes begin: from a server that has loaded the libraries once, or by themselves where there is none.

    Neither takes over anything of this process, such as its threads. The server keeps the environment it began in.
    What it has `loaded` counts where it begins: torch alone is 0.4 GB.
    """
    # DDP warns that it looked for unused heads and found none.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # oneDNN keeps code for 1,024 shapes, 0.4 GB where lengths differ from batch to batch; with 64 it makes much anew.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(list(loaded))
    if current_thread() is main_thread():
        # Signals go to the whole group. The server ignores them, and what it starts does until it says otherwise.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            forkserver.ensure_running()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return context


def torchrun_processes() -> int:
    """How many processes torchrun started; 1 without it. Raises RecipeError where its environment is not whole."""
    wanted = {"WORLD_SIZE": 1, "RANK": 0, "MASTER_PORT": 1}
    way_out = (
        "torchrun sets it (python -m torch.distributed.run --nproc-per-node 2 -m diptych.cli ...); or unset all of it"
    )
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    for name, least in wanted.items():
        value = os.environ.get(name)
        if several and (value is None or not value.isdecimal() or int(value) < least):
            raise RecipeError(f"WORLD_SIZE says that several processes train, and {name} is {value!r}; {way_out}")
    if several and not os.environ.get("MASTER_ADDR"):
        raise RecipeError(f"WORLD_SIZE says that several processes train, and MASTER_ADDR is not set; {way_out}")
    return int(os.environ["WORLD_SIZE"]) if several else 1


def begin_loading() -> None:
    """The server loads from now on, while this process does something else, such as loading the same."""
    if process_context().get_start_method() == "forkserver":
        forkserver.ensure_running()


def map_in_processes(
    work: Callable[[Piece], Made], pieces: Iterable[Piece], processes: int, loaded: Sequence[str] = LOADED_ONCE
) -> Generator[Made, None, None]:
    """`work(piece)` of each piece. All must be picklable, or `processes` 1, with which it is done here.

    `loaded` names the modules that `work` needs. At most two pieces a process are under way or waiting to be taken. An
    error of `work` is raised here, and ends it.
    Closing the iterator (an error or Ctrl-C of the one who asks) waits only for what is under way.
    """
    if processes == 1:
        yield from map(work, pieces)
        return
    left = iter(pieces)
    pool = ProcessPoolExecutor(processes, process_context(loaded), initializer=_begin)
    waiting: deque[Future[Made]] = deque()
    try:
        waiting.extend(pool.submit(work, piece) for piece in islice(left, 2 * processes))
        while waiting:
            made = waiting.popleft().result()
            waiting.extend(pool.submit(work, piece) for piece in islice(left, 1))
            yield made
    except BrokenProcessPool as error:
        raise DiptychError(
            f"one of {processes} processes was ended from outside, for want of memory perhaps; the same command goes "
            "on from here, with --processes 1 in less memory"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Hands out a list whose one number is the most that this process and all it started held at one time, in MiB.

    A look costs a tenth of a second, so there is one every three. What several share is counted once where the system
    says so (Linux).
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
        with suppress(psutil.Error):  # gone by now
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.uss)
    return total / 2**20


def _begin() -> None:
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # they go to the whole group; the one who asked decides
        signal.signal(number, signal.SIG_IGN)


def end_with_parent() -> None:
    """This process ends at once when the one that started it is gone, however that came about: the same command may
    have been given again, and what is on the disk is whole at any moment."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_stop_after_parent, daemon=True).start()


def _stop_after_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
