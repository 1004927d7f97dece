"""Files that are written whole or not at all."""

import errno
import os
import shutil
from pathlib import Path

from diptych.errors import DiptychError


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, flush to the disk, then rename over it: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            free = shutil.disk_usage(path.parent).free
            raise DiptychError(
                f"the disk is full: {path} needs {len(content) / 2**20:.1f} MiB, {free / 2**20:.1f} MiB are free; "
                f"make room and run the same command again"
            ) from error
        raise DiptychError(f"cannot write {path}: {error.strerror}; choose another place with --out") from error
