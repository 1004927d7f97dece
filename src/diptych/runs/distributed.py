"""Run functions in other processes, whose memory is freed when they end."""

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import ParamSpec, TypeVar

import torch

from diptych.runtime.errors import DiptychError, Stopped, Terminated, TrainingError
from diptych.runtime.plugins import load_plugins
from diptych.runtime.processes import end_with_parent, process_context
from diptych.training.ranks import leave

GRACE = 30.0  # a rank has this many seconds to end by itself before it is terminated

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def in_process(work: Callable[Arguments, Made], *given: Arguments.args, **named: Arguments.kwargs) -> Made:
    """Run `work` in another process and return its result. Function, arguments and result must be picklable.

    Exceptions of `work` are raised in this process.
    """
    with workers(1) as pool, ending_children():
        return pool.submit(work, *given, **named).result()


@contextmanager
def ending_children() -> Iterator[None]:
    """Terminate child processes if this process is interrupted. A training run saves a checkpoint before it ends."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        for child in active_children():
            child.terminate()
        raise


def workers(count: int) -> ProcessPoolExecutor:
    """Return a pool of `count` processes that end when this process ends.

    Otherwise a process could still write when the command is repeated.
    """
    return ProcessPoolExecutor(count, process_context(), initializer=_begin, max_tasks_per_child=1)


def _begin() -> None:
    end_with_parent()
    load_plugins()


def together(work: Callable[..., object], *given: object, processes: int) -> None:
    """Run `work` in several ranks with one thread each on this machine, as torchrun does.

    Two ranks with one thread each train a small model about a third faster than one process with two threads. `work`
    must write its result to a file. Raises Stopped if the ranks were stopped, and TrainingError if one failed; that
    rank prints its error.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = process_context()
    ranks = [context.Process(target=_as_rank, args=(rank, processes, port, work, given)) for rank in range(processes)]
    for rank in ranks:
        rank.start()
    ended = {rank.exitcode for rank in until_all_ended(ranks)} - {0}
    if ended == {Stopped.exit_code}:
        raise Stopped("training was stopped and saved; the same command resumes it")
    if ended:
        raise TrainingError(f"a training process failed with exit code {min(map(str, ended))}; see its error above")


def until_all_ended(ranks: Sequence[BaseProcess]) -> Sequence[BaseProcess]:
    """Wait until all ranks have ended.

    If one rank fails, terminate the other ranks, because they would wait for it forever.
    """
    try:
        # The loop ends when no rank is alive: `wait` would block forever on an empty list.
        while going := [rank.sentinel for rank in ranks if rank.is_alive()]:
            wait(going)
            if any(rank.exitcode not in {None, 0, Stopped.exit_code} for rank in ranks):
                break
    except (KeyboardInterrupt, Terminated):
        for rank in ranks:
            rank.terminate()  # on SIGTERM, a rank saves a checkpoint and ends
        raise
    finally:
        for rank in ranks:
            rank.join(GRACE)
            rank.terminate()
            rank.join()
    return ranks


def _as_rank(rank: int, world: int, port: int, work: Callable[..., object], given: tuple[object, ...]) -> None:
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in variables.items()})
    torch.set_num_threads(1)
    end_with_parent()
    try:
        load_plugins()
        work(*given)
    except DiptychError as error:
        if rank == 0 or not isinstance(error, Stopped):
            print(f"diptych: {error}", file=sys.stderr)
        leave(error.exit_code)
    leave(0)
