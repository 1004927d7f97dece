"""Work in processes of their own: when they end, their memory is given back whole."""

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

GRACE = 30.0  # seconds for the others to end when one has

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def in_process(work: Callable[Arguments, Made], *given: Arguments.args, **named: Arguments.kwargs) -> Made:
    """What `work` hands back; it and what it is given must be picklable. Its errors are raised here."""
    with workers(1) as pool, ending_children():
        return pool.submit(work, *given, **named).result()


@contextmanager
def ending_children() -> Iterator[None]:
    """When this process is stopped, so are those that it started: a run in training saves itself first."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        for child in active_children():
            child.terminate()
        raise


def workers(count: int) -> ProcessPoolExecutor:
    """Processes that end when this one does, so that nobody writes on into a folder that is gone on with."""
    return ProcessPoolExecutor(count, process_context(), initializer=_begin, max_tasks_per_child=1)


def _begin() -> None:
    end_with_parent()
    load_plugins()


def together(work: Callable[..., object], *given: object, processes: int) -> None:
    """`work` in processes that train as one, with a thread each: what torchrun does, on this machine alone.

    Two processes of one thread train a small model about a third faster than one process of two threads. What comes of
    it is what `work` writes. Raises Stopped where they were stopped, TrainingError where one failed (it has said why).
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begun = process_context()
    ranks = [begun.Process(target=_as_rank, args=(rank, processes, port, work, given)) for rank in range(processes)]
    for rank in ranks:
        rank.start()
    ended = {rank.exitcode for rank in until_all_ended(ranks)} - {0}
    if ended == {Stopped.exit_code}:
        raise Stopped("stopped and saved; the same command goes on")
    if ended:
        raise TrainingError(f"a training process ended with exit code {min(map(str, ended))}; its output stands above")


def until_all_ended(ranks: Sequence[BaseProcess]) -> Sequence[BaseProcess]:
    """One that fails takes the others with it: they would wait for it."""
    try:
        while going := [rank.sentinel for rank in ranks if rank.is_alive()]:  # once: waiting for none never ends
            wait(going)
            if any(rank.exitcode not in {None, 0, Stopped.exit_code} for rank in ranks):
                break
    except (KeyboardInterrupt, Terminated):
        for rank in ranks:
            rank.terminate()  # they save first
        raise
    finally:
        for rank in ranks:
            rank.join(GRACE)
            rank.terminate()
            rank.join()
    return ranks


def _as_rank(rank: int, world: int, port: int, work: Callable[..., object], given: tuple[object, ...]) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
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
