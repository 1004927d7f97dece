"""A process that does what a hostile file may make a C library do, by the name of the file or `way`."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from typing import IO

import numpy as np

from diptych.vision.limited import Reply, Room, Values, answer

LOWER = 2**31  # bytes of memory, less than the processes ask for


def act(request: Values, _: IO[bytes], room: Room) -> Reply:
    """Do what a hostile file may make a C library do."""
    out, way = sys.stdout.buffer, Path(request["way"] if "way" in request else request["paths"][0]).stem
    if way == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if way == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        while True:
            pass
    if way == "eat":
        return {}, np.empty(2**30)
    if way == "exit":
        os._exit(0)
    wrote = {
        "lie": b"no JSON\n", "objects": b'{"array": [[2], "|O8"]}\n0123456789012345',
        "more": b'{"array": [[1000000, 1000000], "<f4"]}\n', "strange": b'{"error": "SystemExit", "message": ""}\n',
        "endless": b"[" * 2**18,
    }.get(way)  # fmt: skip
    if way == "less":
        wrote = b'{"array": [[8000000], "<f4"]}\n' + bytes(15)
    if wrote is not None:
        out.write(wrote)
        out.flush()
        os._exit(0)
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    return ({"way": way}, array) if "way" in request else ({"parts": [[[2, 3], "<f2"]]}, array.view(np.uint8).ravel())


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (LOWER, LOWER))
    answer(act)
