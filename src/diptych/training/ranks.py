"""The processes (ranks) of a run. torchrun starts one process per rank; without it there is a single rank."""

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any, NoReturn

import torch
from torch import distributed

from diptych.runtime.errors import TrainingError, reason_of
from diptych.runtime.processes import torchrun_processes


def seed_part(*place: int) -> None:
    """Seed torch from `place`: (seed, step, pass, micro-batch). Dropout then depends only on these numbers."""
    digest = hashlib.blake2b("/".join(map(str, place)).encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "big") >> 1)


@dataclass(frozen=True)
class Ranks:
    """A rank of a run, with methods to communicate with the other ranks."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Sum numbers over ranks, elementwise. If gloo is available, this does not wait for a GPU."""
        if self.world == 1:
            return list(numbers)
        device = "cpu" if "gloo" in str(distributed.get_backend_config()) else self.device
        tensor = torch.tensor(numbers, dtype=torch.float64, device=device)
        distributed.all_reduce(tensor)
        return [float(number) for number in tensor.tolist()]

    def from_first(self, thing: Any) -> Any:
        """Return rank 0's `thing` on every rank."""
        if self.world == 1:
            return thing
        objects = [thing]
        distributed.broadcast_object_list(objects, src=0, device=self.device)
        return objects[0]

    def lost(self, error: RuntimeError) -> bool:
        """Return True if the error means that another process of the run has ended."""
        return self.world > 1 and (isinstance(error, distributed.DistBackendError) or "gloo" in str(error))


_left: list[str] = []  # backends of the process groups that this process has tried to join


def leave(code: int) -> NoReturn:
    """Exit with `code`. If this process was one of several ranks, exit without cleanup.

    In a normal exit, gloo's threads end in an undefined order and sometimes abort the process ("terminate called
    without an active exception"). torchrun would then report a finished run as failed.
    """
    if not _left:
        raise SystemExit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Join the ranks that torchrun started, or make a single rank.

    If a process group already exists, it is used, and not destroyed afterwards.
    """
    if distributed.is_available() and distributed.is_initialized():
        yield Ranks(distributed.get_rank(), distributed.get_world_size(), device)
        return
    if torchrun_processes() == 1:
        yield Ranks(0, 1, device)
        return
    _form(device)
    ranks = Ranks(distributed.get_rank(), distributed.get_world_size(), device)
    try:
        yield ranks
    except RuntimeError as error:
        if not ranks.lost(error):
            raise
        raise TrainingError(
            "another process of this run has ended; its output gives the reason. To resume, run the same command again"
        ) from error
    finally:
        distributed.destroy_process_group()


def _form(device: torch.device) -> None:
    """Create the process group in a thread, because torch blocks signals while it waits. Raises TrainingError."""
    # With gloo in addition to nccl, CPU tensors and objects are gathered without the GPU.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    formed: Future[None] = Future()

    def form() -> None:
        try:
            if device.type == "cuda":
                torch.cuda.set_device(device)
            distributed.init_process_group(backend)
        except Exception as error:
            formed.set_exception(error)
        else:
            formed.set_result(None)

    if device.type == "cuda":
        torch.cuda.set_device(device)
    _left.append(backend)
    Thread(target=form, daemon=True).start()
    try:
        formed.result()
    except (RuntimeError, ValueError) as error:
        at = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise TrainingError(
            f"the processes of this run did not connect at {at} ({reason_of(error)}); check that all were "
            "started, that this is the address of the first process, and that no other program uses the port"
        ) from error
