"""One thread owns the models: requests wait in a queue with a limit, and those for one model share its passes."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from diptych.serving.service.limits import Limits
from diptych.serving.service.problems import RequestRefused
from diptych.tasks.interface import Message
from diptych.vision.detectors.detector import Picture


@dataclass
class Timing:
    """Milliseconds of one request, and how many shared its passes."""

    queue: float = 0.0
    extraction: float = 0.0
    model: float = 0.0
    batch: int = 0


@dataclass(eq=False)
class Job:
    """`answered` becomes what is sent, or the exception that says why not. Whoever gave up cancels it."""

    task: str
    model: str
    asked: Any  # the request, of the task's type
    picture: Picture | None = field(default=None, repr=False)
    name: str = ""  # of the picture
    expires: float = float("inf")  # by time.monotonic
    answered: Future[Message] = field(default_factory=Future)
    timing: Timing = field(default_factory=Timing)
    came: float = field(default_factory=time.monotonic)

    @property
    def bytes(self) -> int:
        return 0 if self.picture is None else self.picture.numel()


Answer = Callable[[Sequence[Job]], None]  # settles the `answered` of each


class Worker:
    """Hands batches of jobs for one model to `answer`, in its own thread."""

    def __init__(self, answer: Answer, limits: Limits, seen: Callable[[int], object] = lambda _: None) -> None:
        self.answer_batch, self._limits, self._seen = answer, limits, seen
        self._jobs: deque[Job] = deque()
        self._bytes = 0
        self._last = 1  # jobs of the last batch
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
        """Raises Refused (503) where there is no room for another job with a picture of so many bytes, after those that
        will come before it.
        """
        with self._changed:
            if self._stopped:
                raise RequestRefused(503, "the service is being stopped; ask again in some seconds", retry=5)
            if self._is_full(size, before):
                self._drop_the_given_up()
                if self._is_full(size, before):
                    message = f"the queue is full: {len(self._jobs) + before} requests wait; ask again in a second"
                    raise RequestRefused(503, message, retry=1)

    def submit(self, job: Job) -> None:
        """Raises Refused (503) where the queue is full."""
        with self._changed:
            self.admit(job.bytes)
            self._jobs.append(job)
            self._bytes += job.bytes
            self._changed.notify()

    def _is_full(self, size: int, before: int) -> bool:
        crowded = bool(self._jobs) and self._bytes + size > self._limits.waiting_bytes
        return len(self._jobs) + before >= self._limits.queue or crowded

    def stop(self, seconds: float = 5.0) -> None:
        """Takes nothing more; what waits is refused, and what was begun is ended."""
        with self._changed:
            self._stopped = True
            waiting, self._jobs, self._bytes = list(self._jobs), deque(), 0
            self._changed.notify()
        for job in waiting:
            refuse(job, RequestRefused(503, "the service is being stopped; ask again in some seconds", retry=5))
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if not batch:
                continue
            self._seen(len(batch))
            try:
                self.answer_batch(batch)
            except BaseException as error:  # a fault of ours: those who wait are told, and the next batch is answered
                for job in batch:
                    refuse(job, error)

    def _next(self) -> list[Job] | None:
        """The oldest job and those that can share its passes; None once it is stopped."""
        with self._changed:
            while not self._jobs and not self._stopped:
                self._changed.wait()
            if self._stopped:
                return None
            # Whoever asked together asks again together: the last batch says how many are worth waiting for.
            until = time.monotonic() + self._limits.linger
            while len(self._jobs) < self._last and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            taken = self._take()
            self._last = len(taken)
            return taken

    def _take(self) -> list[Job]:
        taken: list[Job] = []
        left: deque[Job] = deque()
        now = time.monotonic()
        for job in self._jobs:
            if taken and (job.model != taken[0].model or len(taken) == self._limits.batch):
                left.append(job)
            elif job.expires < now:
                refuse(job, late())
            elif job.answered.set_running_or_notify_cancel():
                job.timing.queue = 1000 * (now - job.came)
                taken.append(job)
        self._jobs = left
        self._bytes = sum(job.bytes for job in left)
        for job in taken:
            job.timing.batch = len(taken)
        return taken

    def _drop_the_given_up(self) -> None:
        self._jobs = deque(job for job in self._jobs if not job.answered.cancelled())
        self._bytes = sum(job.bytes for job in self._jobs)


def late() -> RequestRefused:
    return RequestRefused(
        503, "the request waited longer than the deadline of the service; ask again in some seconds", retry=2
    )


def refuse(job: Job, error: BaseException) -> None:
    """Unless it is settled, or given up by who asked."""
    if job.answered.done():
        return
    if job.answered.running() or job.answered.set_running_or_notify_cancel():
        job.answered.set_exception(error)
