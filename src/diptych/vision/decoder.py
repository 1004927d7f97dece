"""Decode image files in separate processes, which have a deadline and a memory limit.

Hostile files make the limits necessary: a progressive JPEG of 350 kB took 12.7 s to decode. vision/limited.py starts
and ends the processes (`python -m diptych.vision.decoder`).
"""

import atexit
import os
from functools import cache
from pathlib import Path
from typing import IO, cast

from diptych.runtime.errors import DataError
from diptych.vision.image_files import count_frames, open_pixels, read_pixels
from diptych.vision.limited import MEMORY, SECONDS, Ended, LimitedProcesses, Reply, Room, Values, answer
from diptych.vision.upright import MOST_PIXELS, Pixels, TooManyPixels, UnknownFormat

ERRORS = {kind.__name__: kind for kind in (DataError, TooManyPixels, UnknownFormat)}


class Decoders:
    """A pool of decoding processes. A process is started when it is needed, or to replace one that was ended.

    Args:
        processes: maximum number of processes. Each decodes one image at a time; further calls wait.
        seconds: limit of CPU time per image. The process is then ended. The limit of elapsed time is ten times as long.
        memory: limit of address space per process, in bytes. An image of MOST_PIXELS with 16 bits needs 2 GiB.
        nice: Unix niceness of the processes, 0 to 19; 19 is the lowest priority.
    """

    def __init__(self, processes: int, seconds: float = SECONDS, memory: int = MEMORY, nice: int = 0) -> None:
        self._processes = LimitedProcesses("diptych.vision.decoder", ERRORS, processes, seconds, memory, nice)
        self.close, self.nice = self._processes.close, nice

    def open(self, path: Path) -> Pixels:
        """Read an image file like `open_pixels`, as uint8 (H, W, 3).

        Raises DataError if the file cannot be read, or if a limit is exceeded.
        """
        folder = "/" if path.is_absolute() else os.getcwd()
        return self._ask({"path": str(path), "folder": folder, "name": str(path)})[0]

    def read(self, file: bytes, name: str, most_pixels: int = MOST_PIXELS) -> Pixels:
        """Read an image from bytes, uint8 (H, W, 3). Raises DataError, UnknownFormat or TooManyPixels."""
        return self.read_frames(file, name, most_pixels, count=False)[0]

    def read_frames(self, file: bytes, name: str, most_pixels: int, count: bool = True) -> tuple[Pixels, int]:
        """Read an image from bytes, and count its frames. With `count=False`, the count returned is 1."""
        return self._ask({"bytes": len(file), "name": name, "most_pixels": most_pixels, "count": count}, file)

    def _ask(self, request: Values, file: bytes = b"") -> tuple[Pixels, int]:
        try:
            values, pixels = self._processes.ask(request, file)
        except Ended as error:
            why = f"cannot read the image {request['name']}: decoding {error}; save it again with another program"
            raise DataError(why) from None
        return cast("Pixels", pixels), values["frames"]


@cache
def shared_decoders() -> Decoders:
    """Return the pool of decoders that this process shares, with one decoder per core."""
    decoders = Decoders(os.cpu_count() or 1)
    atexit.register(decoders.close)
    return decoders


def _decode(request: Values, requests: IO[bytes], _: Room) -> Reply:
    if "path" in request:
        os.chdir(request["folder"])
        return {"frames": 1}, open_pixels(Path(request["path"]))
    file, most = requests.read(request["bytes"]), request["most_pixels"]
    frames = count_frames(file, request["name"]) if request["count"] else 1
    return {"frames": frames}, read_pixels(file, request["name"], most)


if __name__ == "__main__":
    answer(_decode)
