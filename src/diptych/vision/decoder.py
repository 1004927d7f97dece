"""Decode image files in processes of their own, which are ended at a deadline and have a limit of memory.

A thread that decodes a hostile file cannot be stopped: a progressive JPEG of 350 kB held one for 12.7 s. Each process
(`python -m diptych.vision.decoder`) reads requests from its standard input, one at a time: a line of JSON, and the
bytes of the file. It writes a line of JSON, and the pixels.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import BoundedSemaphore
from typing import IO, Any, cast

import numpy as np

from diptych.runtime.errors import DataError
from diptych.vision.image_files import (
    MOST_PIXELS,
    Pixels,
    TooManyPixels,
    UnknownFormat,
    count_frames,
    open_pixels,
    read_pixels,
)

SECONDS = 5.0  # of CPU time an image
PATIENCE = 10  # times as long by the clock, as the machine may be busy
MEMORY = 3 * 2**30  # bytes of address space: an image of MOST_PIXELS at 16 bits needs 2 GiB
PIPE = 2**20  # bytes
ERRORS = {kind.__name__: kind for kind in (DataError, TooManyPixels, UnknownFormat)}


class Decoders:
    """Up to `processes` decoding processes, started when needed and again after one was ended.

    Args:
        processes: images that are decoded at a time; further calls wait.
        seconds: CPU time after which the process of an image is ended; ten times as much by the clock.
        memory: bytes of address space of a process.
        nice: how far the processes yield to others on the same cores, 0 to 19.
    """

    def __init__(self, processes: int, seconds: float = SECONDS, memory: int = MEMORY, nice: int = 0) -> None:
        self.seconds, self.memory, self.nice = seconds, memory, nice
        self._idle: deque[subprocess.Popen[bytes]] = deque()
        self._free = BoundedSemaphore(processes)

    def open(self, path: Path) -> Pixels:
        """Read an image file, uint8 (H, W, 3), as `open_pixels` does. Raises DataError, also at the deadline."""
        folder = "/" if path.is_absolute() else os.getcwd()
        return self._ask({"path": str(path), "folder": folder, "name": str(path)})[0]

    def read(self, file: bytes, name: str, most_pixels: int = MOST_PIXELS) -> Pixels:
        """Read an image from bytes, uint8 (H, W, 3). Raises DataError, UnknownFormat or TooManyPixels."""
        return self.read_frames(file, name, most_pixels, count=False)[0]

    def read_frames(self, file: bytes, name: str, most_pixels: int, count: bool = True) -> tuple[Pixels, int]:
        """Read an image from bytes as `read` does, and count its frames (1 where `count` is False)."""
        return self._ask({"bytes": len(file), "name": name, "most_pixels": most_pixels, "count": count}, file)

    def close(self) -> None:
        """End the processes."""
        while self._idle:
            _end(self._idle.pop())

    def _ask(self, request: dict[str, Any], file: bytes = b"") -> tuple[Pixels, int]:
        with self._free:
            child = self._take()
            try:
                to, back = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
                to.write(json.dumps(request).encode() + b"\n")
                to.write(file)
                to.flush()
                reply = json.loads(back.readline())
                if "error" not in reply:
                    pixels = np.empty((*reply["size"], 3), np.uint8)
                    _fill(back, pixels)
                self._idle.append(child)
            except (OSError, ValueError, EOFError):  # it has ended
                raise DataError(f"cannot read the image {request['name']}: {self._why(_end(child))}") from None
            except BaseException:  # an interrupt amid a reply
                _end(child)
                raise
        if "error" in reply:
            raise ERRORS[reply["error"]](reply["message"])
        return pixels, reply["frames"]

    def _take(self) -> subprocess.Popen[bytes]:
        while self._idle:
            child = self._idle.pop()
            if child.poll() is None:
                return child
            _end(child)  # it was killed while it was idle
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        limits = [str(self.seconds), str(self.memory), str(self.nice)]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "diptych.vision.decoder", *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pipesize=PIPE,
            start_new_session=True,  # Ctrl-C is for the parent
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "OMP_NUM_THREADS": "1"},
        )

    def _why(self, code: int) -> str:
        if code in (-signal.SIGPROF, -signal.SIGALRM):
            return f"decoding took more than {self.seconds:g} seconds; save it anew with another program"
        return f"its decoder ended ({code}), perhaps for lack of memory; save it anew with another program"


@cache
def shared_decoders() -> Decoders:
    """The decoders of this process, one a core."""
    decoders = Decoders(os.cpu_count() or 1)
    atexit.register(decoders.close)
    return decoders


def _end(child: subprocess.Popen[bytes]) -> int:
    """End a process, and return its code: negative for the signal that ended it."""
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            cast("IO[bytes]", pipe).close()
    try:
        return child.wait(1.0)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _fill(file: IO[bytes], pixels: Pixels) -> None:
    left = pixels.data.cast("B")
    while left:
        count = cast(Any, file).readinto(left)
        if not count:
            raise EOFError
        left = left[count:]


def _main(seconds: float, memory: int, nice: int) -> None:
    """Answer requests until the standard input ends."""
    import resource  # POSIX alone has it

    os.nice(nice)
    with suppress(OSError), open("/proc/self/autogroup", "w") as group:  # a session may be a group, with one of its own
        group.write(str(nice))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    while line := requests.readline():
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, seconds * PATIENCE)
        try:
            pixels, frames = _decode(request, requests)
            reply: dict[str, Any] = {"size": pixels.shape[:2], "frames": frames}
        except DataError as error:
            reply = {"error": type(error).__name__, "message": str(error)}
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write(json.dumps(reply).encode() + b"\n")
        if "size" in reply:
            replies.write(pixels.data.cast("B"))
        replies.flush()


def _decode(request: dict[str, Any], requests: IO[bytes]) -> tuple[Pixels, int]:
    if "path" in request:
        os.chdir(request["folder"])
        return open_pixels(Path(request["path"])), 1
    file, most = requests.read(request["bytes"]), request["most_pixels"]
    frames = count_frames(file, request["name"]) if request["count"] else 1
    return read_pixels(file, request["name"], most), frames


if __name__ == "__main__":
    _main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
