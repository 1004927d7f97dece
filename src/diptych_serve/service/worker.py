"""The worker thread that runs the models, and its bounded queue. Several requests for one model form a batch."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from diptych.tasks.interface import Message
from diptych.vision.detectors.detector import Picture
from diptych_serve.service.limits import Limits
from diptych_serve.service.problems import RequestRefused

STOPPING = "the service is stopping; retry in some seconds"


@dataclass
class Timing:
    """The milliseconds that a request spent in each stage, and the number of requests in its batch."""

    queue: float = 0.0
    extraction: float = 0.0
    model: float = 0.0
    batch: int = 0


@dataclass(eq=False)
class Job:
    """A request in the queue.

    `answered`: a future for the message or exception. The request's handler awaits the future, and may cancel it.
    """

    task: str
    model: str
    request: Any  # the parsed request of the task
    picture: Picture | None = field(default=None, repr=False)
    name: str = ""  # the image's name
    expires: float = float("inf")  # deadline as time.monotonic()
    answered: Future[Message] = field(default_factory=Future)
    timing: Timing = field(default_factory=Timing)
    came: float = field(default_factory=time.monotonic)

    @property
    def bytes(self) -> int:
        return 0 if self.picture is None else self.picture.numel()


Answer = Callable[[Sequence[Job]], None]  # sets the result in `answered` of each job


class Worker:
    """A thread that calls `answer` with batches of jobs.

    The jobs of a batch are for the same model. `observe` is called with each batch size.
    """

    def __init__(self, answer: Answer, limits: Limits, observe: Callable[[int], object] = lambda _: None) -> None:
        self.answer_batch, self._limits, self._observe = answer, limits, observe
        self._jobs: deque[Job] = deque()
        self._last = 1  # size of the last batch
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="diptych-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._stopped

    def __len__(self) -> int:
        return len(self._jobs)

    def admit(self, size: int = 0, before: int = 0) -> None:
        """Raise RequestRefused (503) unless the queue has room for a job with an image of `size` bytes.

        `before`: the number of earlier requests whose images are still being decoded.
        """
        with self._changed:
            if self._stopped:
                raise RequestRefused(503, STOPPING, retry=5)
            if self._is_full(size, before):
                self._drop_cancelled()
            if self._is_full(size, before):
                message = f"the queue is full: {len(self._jobs) + before} requests wait; retry in a second"
                raise RequestRefused(503, message, retry=1)

    def submit(self, job: Job) -> None:
        """Add a job to the queue. Raises RequestRefused (503) if the queue is full."""
        with self._changed:
            self.admit(job.bytes)
            self._jobs.append(job)
            self._changed.notify()

    def _is_full(self, size: int, before: int) -> bool:
        crowded = sum(job.bytes for job in self._jobs) + size > self._limits.waiting_bytes
        return len(self._jobs) + before >= self._limits.queue or (bool(self._jobs) and crowded)

    def stop(self, seconds: float = 5.0) -> None:
        """Stop the worker: reject waiting jobs, and wait up to `seconds` for the batch in progress."""
        with self._changed:
            self._stopped = True
            waiting, self._jobs = list(self._jobs), deque()
            self._changed.notify()
        for job in waiting:
            refuse(job, RequestRefused(503, STOPPING, retry=5))
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if not batch:
                continue
            self._observe(len(batch))
            try:
                self.answer_batch(batch)
            except BaseException as error:  # a bug fails only these jobs; the worker continues
                for job in batch:
                    refuse(job, error)

    def _next(self) -> list[Job] | None:
        """Wait for jobs and return the next batch: the oldest job, and others for the same model.

        Return None after `stop`.
        """
        with self._changed:
            while not self._jobs and not self._stopped:
                self._changed.wait()
            if self._stopped:
                return None
            # Wait up to `linger` seconds for as many jobs as in the last batch, because clients often send requests in
            # parallel.
            until = time.monotonic() + self._limits.linger
            while len(self._jobs) < self._last and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            taken = self._take()
            self._last = len(taken)
            return taken

    def _take(self) -> list[Job]:
        taken, left, now = list[Job](), deque[Job](), time.monotonic()
        for job in self._jobs:
            if taken and (job.model != taken[0].model or len(taken) == self._limits.batch):
                left.append(job)
            elif job.expires < now:
                refuse(job, late())
            elif job.answered.set_running_or_notify_cancel():
                job.timing.queue = 1000 * (now - job.came)
                taken.append(job)
        self._jobs = left
        for job in taken:
            job.timing.batch = len(taken)
        return taken

    def _drop_cancelled(self) -> None:
        self._jobs = deque(job for job in self._jobs if not job.answered.cancelled())


def late() -> RequestRefused:
    """Return the error of a request whose deadline has passed."""
    return RequestRefused(503, "the request waited longer than the service's deadline; retry in some seconds", retry=2)


def refuse(job: Job, error: BaseException) -> None:
    """Answer a job with an error, unless it was answered or cancelled."""
    if job.answered.done():
        return
    if job.answered.running() or job.answered.set_running_or_notify_cancel():
        job.answered.set_exception(error)
