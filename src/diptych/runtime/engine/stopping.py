"""Handle SIGTERM and Ctrl-C while shards are processed.

Unfinished shards are discarded, complete ones stay; the exit code is 75.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

from diptych.runtime.errors import Stopped

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[None]:
    """Return a context in which SIGTERM or Ctrl-C ends the child processes at once, and raises Stopped here.

    It has an effect only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, _stop) for one in SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _stop(_number: int, _frame: FrameType | None) -> None:
    for one in SIGNALS:
        signal.signal(one, signal.SIG_DFL)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.terminate()
    raise Stopped("stopped; complete shards are kept, and the same command resumes")
