"""Prefetch batches in threads or processes, and copy them to the device while it computes.

A batch depends only on its (step, micro-batch), so checkpoints need no loader state.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from diptych.core import Update
from diptych.runtime.errors import DiptychError, TrainingError
from diptych.runtime.plugins import load_plugins
from diptych.runtime.processes import process_context
from diptych.training.config import TrainingConfig

MOST = 8  # default maximum number of loader processes
Place = TypeVar("Place")
Made = TypeVar("Made")


@contextmanager
def prefetched(
    make: Callable[[Place], Made], places: Iterable[Place], threads: int, waiting: int
) -> Iterator[Iterator[Made]]:
    """Return a context with an iterator over `make(place)` for each of `places`, in order.

    Threads prefetch at most `waiting` results. With `threads=0`, nothing is prefetched.
    """
    if threads == 0:
        yield map(make, places)
        return
    left = iter(places)
    with ThreadPoolExecutor(threads, thread_name_prefix="batches") as pool:
        queue: deque[Future[Made]] = deque(pool.submit(make, place) for place in islice(left, waiting))

        def results() -> Iterator[Made]:
            while queue:
                made = queue.popleft().result()
                queue.extend(pool.submit(make, place) for place in islice(left, 1))
                yield made

        try:
            yield results()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def from_processes(
    make: Callable[[Place], Made], places: Iterable[Place], processes: int, waiting: int, pinned: bool
) -> Iterator[Iterator[Made]]:
    """Like `prefetched`, with worker processes instead of threads.

    `make` is sent to each process once. Results come back in shared memory.

    `pinned`: results are copied to page-locked memory, from which a GPU can copy asynchronously.
    """
    loader: Iterator[Made | DiptychError] = iter(
        DataLoader(
            _Made(make),
            batch_size=None,
            sampler=places,
            num_workers=processes,
            prefetch_factor=max(waiting // processes, 1),
            multiprocessing_context=process_context(),
            pin_memory=pinned,
            generator=torch.Generator(),
            worker_init_fn=_begin,
        )
    )

    def results() -> Iterator[Made]:
        while True:
            try:
                made = next(loader)
            except StopIteration:
                return
            except RuntimeError as error:
                if "worker" not in str(error) and "shared memory" not in str(error):
                    raise
                raise TrainingError(
                    f"a loader process has ended ({str(error).splitlines()[0]}), perhaps because memory "
                    "(or shared memory, /dev/shm) ran out; set training.loading_processes=0 to make batches in threads"
                ) from error
            if isinstance(made, DiptychError):
                raise made
            yield made

    try:
        yield results()
    finally:
        del loader


def _begin(_: int) -> None:
    load_plugins()


class _Made(Dataset[Any], Generic[Place, Made]):
    """A data set whose items are results of `make`.

    It returns a DiptychError instead of raising it, because DataLoader would change the error's message.
    """

    def __init__(self, make: Callable[[Place], Made]) -> None:
        self.make = make

    def __getitem__(self, place: Place) -> Made | DiptychError:
        try:
            return self.make(place)
        except DiptychError as error:
            return error


Counts = dict[str, float]
B_co = TypeVar("B_co", covariant=True)


class Batches(Protocol[B_co]):
    """The batches of a run. `at` must be deterministic and thread-safe.

    `at` returns micro-batch `part` of the `parts` micro-batches of a step. A micro-batch must have samples, but may
    have no targets. Optional attributes of a batch: `.to(device)`, `.keys` (its records), and `.idle` (True: do not
    train on it).
    """

    def at(self, step: int, part: int, parts: int) -> B_co: ...


class Updates(Protocol):
    """The choice of the update for each step. `at` must be deterministic, so that all ranks and resumed runs agree."""

    def at(self, step: int) -> Update: ...


@dataclass(frozen=True)
class BatchPart:
    """A micro-batch with the number of targets of each objective. All numbers are 0 for an idle batch."""

    batch: Any
    counts: Counts
    left_out: dict[str, str]  # {key of a record that could not be read: reason}, since the run began
    held: frozenset[str] = frozenset()  # objectives that would have targets if all records of the batch could be read

    @property
    def keys(self) -> list[str]:
        keys = getattr(self.batch, "keys", None)
        return list(keys) if isinstance(keys, list | tuple) else []

    def scaled(self, scales: Mapping[str, float]) -> Counts:
        """Return the factor of each loss of this micro-batch. For an idle batch it is 0.

        The backward pass also runs for an idle batch, because every process must take part in the gradient reduction.
        """
        return {name: 0.0 if name in self.held else scale for name, scale in scales.items()
                if self.counts[name] or name in self.held}  # fmt: skip

    def pin_memory(self) -> BatchPart:
        return replace(self, batch=self.batch.pin_memory()) if hasattr(self.batch, "pin_memory") else self


@dataclass(frozen=True)
class Maker:
    """Makes the micro-batch of (step, part), and counts its targets on the CPU.

    It is called in loader threads or processes.
    """

    updates: Updates
    batches: Batches[Any]
    parts: int
    pinned: bool = False

    def __call__(self, place: tuple[int, int]) -> BatchPart:
        step, part = place
        batch, update = self.batches.at(step, part, self.parts), self.updates.at(step)
        counts = {name: float(number) for name, number in update.counts(batch).items()}
        held = frozenset(name for name, number in counts.items() if number and getattr(batch, "idle", False))
        made = BatchPart(batch, counts | dict.fromkeys(held, 0.0), dict(getattr(self.batches, "corrupt", {})), held)
        return made.pin_memory() if self.pinned else made


def by_step(parts: Iterator[BatchPart], count: int, ahead: bool) -> Iterator[tuple[list[BatchPart], BatchPart | None]]:
    """Yield for each step its `count` micro-batches, and the first one of the next step (None if not `ahead`)."""
    following: BatchPart | None = None
    while first := following or next(parts, None):
        mine = [first, *islice(parts, count - 1)]
        following = next(parts, None) if ahead else None
        yield mine, following


class Sender:
    """Copies micro-batches to a device. The next one is copied while the device computes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._under_way: dict[int, tuple[Any, torch.cuda.Event]] = {}

    def send(self, part: BatchPart | None) -> None:
        """Start to copy a micro-batch asynchronously."""
        if self._stream is None or part is None or id(part) in self._under_way:
            return
        with torch.cuda.stream(self._stream):
            batch = _moved(part.batch, self.device)
            there = torch.cuda.Event()  # type: ignore[no-untyped-call]
            there.record()
        self._under_way[id(part)] = batch, there

    def arrived(self, part: BatchPart) -> Any:
        """Return the batch on the device. Work that is queued after this call waits for the copy."""
        if self._stream is None:
            return _moved(part.batch, self.device)
        self.send(part)
        batch, there = self._under_way.pop(id(part))
        now = torch.cuda.current_stream(self.device)
        now.wait_event(there)
        for tensor in batch.tensors() if hasattr(batch, "tensors") else ():
            # The allocator may reuse the tensor's memory only after this stream has read the tensor.
            tensor.record_stream(now)
        return batch


def _moved(batch: Any, device: torch.device) -> Any:
    return batch.to(device) if hasattr(batch, "to") else batch


def prefetched_parts(
    make: Maker, places: Iterable[tuple[int, int]], at_once: int, training: TrainingConfig, device: torch.device
) -> AbstractContextManager[Iterator[BatchPart]]:
    """Return a context with an iterator over prefetched micro-batches.

    `at_once`: number of micro-batches per step and rank.
    """
    world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if processes := loading_processes(training.loading_processes, device, os.cpu_count() or 1, world):
        # Pinned memory of a worker is not pinned in this process, so this process pins the batches.
        unpinned = replace(make, pinned=False)
        return from_processes(unpinned, places, processes, 2 * processes + at_once, make.pinned)
    threads = training.loading_threads
    return prefetched(make, places, threads, threads + at_once)


def loading_processes(setting: int | None, device: torch.device, cores: int, world: int) -> int:
    """Return the number of loader processes per rank.

    `setting`: the number in the recipe. None: computed from `cores`, which `world` ranks share.
    """
    if setting is not None:
        return setting
    return min(cores // (2 * world), MOST) if device.type == "cuda" else 0
