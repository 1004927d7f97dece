"""SIGTERM and Ctrl-C as requests to stop. The training loop stops after the current step."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# SIGTERMs within 5 seconds count as one signal, because a batch system and uv may each send one.
ONE = 5.0


class StopRequest:
    """Handlers of SIGTERM and Ctrl-C. `requested` is True after a signal has arrived.

    A second signal has its default effect, except a SIGTERM within `ONE` seconds of the first, which is ignored.
    """

    def __init__(self) -> None:
        self.requested = False
        self._since = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python allows signal handlers only in this thread
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
