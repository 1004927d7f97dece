"""SIGTERM and Ctrl-C as requests to stop, which the loop obeys between two steps."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)
ONE = 5.0  # seconds in which SIGTERMs count once: batch systems send it to the whole group, and uv to its child again


class StopRequest:
    """Signal handlers: `requested` is True once a signal has arrived.

    The next signal has its default effect, except a SIGTERM within ONE seconds, which counts as the same request.
    """

    def __init__(self) -> None:
        self.requested = False
        self._since = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python forbids handlers
            self._before = {s: signal.signal(s, self._note) for s in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested, self._since = True, time.monotonic()
        elif number == signal.SIGINT or time.monotonic() - self._since > ONE:
            self._restore()
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
