"""Batches made ahead of time, by threads or processes, and sent to the device beside its work. Each is a pure function
of its place, so nothing here needs saving."""

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

MOST = 8  # processes that make batches, where nobody says how many
Place = TypeVar("Place")
Made = TypeVar("Made")


@contextmanager
def prefetched(
    make: Callable[[Place], Made], places: Iterable[Place], threads: int, waiting: int
) -> Iterator[Iterator[Made]]:
    """`make(place)` for each place in order; at most `waiting` are under way or ready.

    Without threads each is made when it is asked for.
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
    """As `prefetched`, each made by one of so many processes, to which `make` goes once. What is made comes back in
    shared memory; `pinned`: in memory from which a GPU can fetch."""
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
                    f"a process that makes batches has ended ({str(error).splitlines()[0]}), for want of memory (or of "
                    "shared memory, /dev/shm) perhaps; training.loading_processes=0 makes them in threads"
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
    """What is made of places; an error for the user comes back as itself."""

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
    """A pure function, called from threads. The global batch of a step is cut into `parts`; a part may have nothing to
    predict, but it has samples, and of one that is `.idle` nothing is learnt. A batch moves by `.to(device)` if it has
    that; a list `.keys` names its records."""

    def at(self, step: int, part: int, parts: int) -> B_co: ...


class Updates(Protocol):
    """Which update a step makes: a pure function, so that all ranks and resumes agree."""

    def at(self, step: int) -> Update: ...


@dataclass(frozen=True)
class BatchPart:
    """A micro-batch, and how many objects each objective predicts in it: none where nothing is learnt from it."""

    batch: Any
    counts: Counts
    left_out: dict[str, str]  # records that could not be read so far, and why
    held: frozenset[str] = frozenset()  # of a batch that is idle: objectives that would predict something

    @property
    def keys(self) -> list[str]:
        keys = getattr(self.batch, "keys", None)
        return list(keys) if isinstance(keys, list | tuple) else []

    def scaled(self, scales: Mapping[str, float]) -> Counts:
        """By what each loss is multiplied that this part has. One that is idle goes backward too, by 0: every process
        has to take part where gradients meet.
        """
        return {name: 0.0 if name in self.held else scale for name, scale in scales.items()
                if self.counts[name] or name in self.held}  # fmt: skip

    def pin_memory(self) -> BatchPart:
        return replace(self, batch=self.batch.pin_memory()) if hasattr(self.batch, "pin_memory") else self


@dataclass(frozen=True)
class Maker:
    """Makes the part of (step, part), in a thread or process that loads. Counting here, on the CPU, spares the GPU a
    wait."""

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
    """`count` parts for each step, and the first of the next one, where that is to be had `ahead`."""
    following: BatchPart | None = None
    while first := following or next(parts, None):
        mine = [first, *islice(parts, count - 1)]
        following = next(parts, None) if ahead else None
        yield mine, following


class Sender:
    """Sends batches to a device a micro-batch ahead of its work."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._under_way: dict[int, tuple[Any, torch.cuda.Event]] = {}

    def send(self, part: BatchPart | None) -> None:
        """It begins to go there, beside what the device does."""
        if self._stream is None or part is None or id(part) in self._under_way:
            return
        with torch.cuda.stream(self._stream):
            batch = _moved(part.batch, self.device)
            there = torch.cuda.Event()  # type: ignore[no-untyped-call]
            there.record()
        self._under_way[id(part)] = batch, there

    def arrived(self, part: BatchPart) -> Any:
        """Its batch on the device; what is given to the device from now on comes after it."""
        if self._stream is None:
            return _moved(part.batch, self.device)
        self.send(part)
        batch, there = self._under_way.pop(id(part))
        now = torch.cuda.current_stream(self.device)
        now.wait_event(there)
        for tensor in batch.tensors() if hasattr(batch, "tensors") else ():
            tensor.record_stream(now)  # its memory is not given away before this stream has read it
        return batch


def _moved(batch: Any, device: torch.device) -> Any:
    return batch.to(device) if hasattr(batch, "to") else batch


def prefetched_parts(
    make: Maker, places: Iterable[tuple[int, int]], at_once: int, training: TrainingConfig, device: torch.device
) -> AbstractContextManager[Iterator[BatchPart]]:
    """Parts by the threads or processes that the run is given; `at_once` of them make a step."""
    world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if processes := loading_processes(training.loading_processes, device, os.cpu_count() or 1, world):
        unpinned = replace(make, pinned=False)  # what a process has pinned would not be pinned here
        return from_processes(unpinned, places, processes, 2 * processes + at_once, make.pinned)
    threads = training.loading_threads
    return prefetched(make, places, threads, threads + at_once)


def loading_processes(asked: int | None, device: torch.device, cores: int, world: int) -> int:
    """How many make batches: of `cores`, which `world` processes share."""
    if asked is not None:
        return asked
    return min(cores // (2 * world), MOST) if device.type == "cuda" else 0
