"""A lock on a folder that a command writes to. The kernel frees the lock when the process that holds it ends."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident

from diptych.runtime.errors import DiptychError
from diptych.runtime.files import text_of

FILE = ".lock"  # lock file; contains the name of the process that holds the lock, for the error message
WAIT = 0.1  # a taken lock is tried again for this number of seconds, because its holder may be ending
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)  # network disks without file locks raise these


_held: set[tuple[Path, int]] = set()  # (folder, thread) pairs of locks held in this process


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock a folder for this thread during a `with` block. Under torchrun, rank 0 locks it for all ranks.

    If this thread already has the lock, nothing changes. Raises DiptychError, with the name of the holder, if another
    process or thread has the lock.
    """
    mine = folder.resolve(), get_ident()
    if os.name == "nt" or os.environ.get("RANK", "0") != "0" or mine in _held:
        yield
        return
    from filelock import FileLock, Timeout  # imported here, because the import takes 0.1 s

    path, holder = folder / FILE, ""
    if os.path.lexists(path) and not (path.is_file() and not path.is_symlink()):
        raise DiptychError(
            f"{path} is not a plain file, so it cannot lock the folder; remove it, or pass another folder"
        )
    lock = FileLock(path, timeout=WAIT, mode=0o644, fallback_to_soft=False)
    try:
        lock.acquire()
        path.write_text(f"process {os.getpid()} of {socket.gethostname()}")
    except Timeout as error:
        with suppress(OSError):  # the lock file may be gone, if its process has just ended
            holder = text_of(path, errors="replace")[:1000]
        holder = holder or "another process"
        raise DiptychError(f"{holder} is writing to {folder}; wait until it ends, or choose another folder") from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    _held.add(mine)
    try:
        yield
    finally:
        _held.discard(mine)
        path.unlink(missing_ok=True)
        lock.release()
