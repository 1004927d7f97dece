"""One command at a time in a folder that is written to, by a lock that the kernel frees when its holder dies."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diptych.runtime.errors import DiptychError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FILE = ".lock"  # who holds it, for the message alone


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder is there, and this command's alone; under torchrun the first process holds it for all.

    What was made for the lock goes again, where nothing was written. Raises DiptychError, which says who holds it.
    """
    if fcntl is None or os.environ.get("RANK", "0") != "0":
        yield
        return
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    handle = _taken(folder / FILE)
    try:
        yield
    finally:
        (folder / FILE).unlink(missing_ok=True)
        os.close(handle)
        with suppress(OSError):  # something was written
            for path in made:
                path.rmdir()


def _taken(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(handle, 1000).decode("utf-8", "replace")
            os.close(handle)
            raise DiptychError(
                f"{path.parent} is being written to by {holder or 'another process'}; wait until it has ended, or give "
                "another folder"
            ) from error
        except OSError:  # a disk of the network without locks
            return handle
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                os.ftruncate(handle, 0)
                os.write(handle, f"process {os.getpid()} of {socket.gethostname()}".encode())
                return handle
        os.close(handle)  # of a holder that has just ended and took the file away
