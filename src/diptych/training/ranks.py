"""The processes of a run. Under torchrun each process is one rank; without it there is one rank."""

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

from diptych.runtime.downloads import first_line
from diptych.runtime.errors import TrainingError
from diptych.runtime.processes import torchrun_processes


def seed_part(*place: int) -> None:
    """Seeds torch by (seed, step, pass, part), so that dropout depends on the place and on nothing before it."""
    digest = hashlib.blake2b("/".join(map(str, place)).encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "big") >> 1)


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, and what they say to each other."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Numbers of the host: no GPU is waited for where processes can speak past it, as `join_ranks` has it."""
        if self.world == 1:
            return list(numbers)
        device = "cpu" if "gloo" in str(distributed.get_backend_config()) else self.device
        tensor = torch.tensor(numbers, dtype=torch.float64, device=device)
        distributed.all_reduce(tensor)
        return [float(number) for number in tensor.tolist()]

    def from_first(self, thing: Any) -> Any:
        """What rank 0 has, on every rank."""
        if self.world == 1:
            return thing
        objects = [thing]
        distributed.broadcast_object_list(objects, src=0, device=self.device)
        return objects[0]

    def lost(self, error: RuntimeError) -> bool:
        """Whether it says that another of several processes is gone."""
        return self.world > 1 and (isinstance(error, distributed.DistBackendError) or "gloo" in str(error))


_left: list[str] = []  # backends of the process groups that this process has been in, or was about to be


def leave(code: int) -> NoReturn:
    """End this process, at once where it was one of several.

    Left to itself the interpreter takes gloo's threads down in no certain order; now and then one aborts the process
    ("terminate called without an active exception"), and torchrun would then call a finished run failed.
    """
    if not _left:
        raise SystemExit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """One rank, or all that torchrun started. A process group that exists already is used and left alone."""
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
            "another process of this run has ended, and what it printed says why; the same command goes on"
        ) from error
    finally:
        distributed.destroy_process_group()


def _form(device: torch.device) -> None:
    """The process group, in a thread: who waits for the others in torch hears no signal. Raises TrainingError."""
    # gloo beside nccl: gathers of CPU tensors and objects must not need a GPU.
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
            f"the processes of this run have not met at {at} ({first_line(error)}); see that all of them were started, "
            "that this address is the first one's, and that no other program has the port"
        ) from error
