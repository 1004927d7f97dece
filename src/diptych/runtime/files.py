"""Files and folders that are written whole or not at all, and are on the disk when a name says so.

.NAME.PID.partial     what is being written beside NAME
.NAME.PID.old         the folder NAME as it was, while another takes its place

What a kill leaves of either is swept by the next run of the same command (`sweep`).
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from diptych.runtime.errors import DiptychError

_LEFT = re.compile(r"\.(.+)\.(\d+)\.(partial|old)")


def write_atomically(path: Path, *content: bytes | memoryview) -> None:
    """Write the pieces of content, one after the other, beside the target, flush to the disk, then rename over it: a
    reader sees the old file or the new one.

    Where a link leads, its target is written. A device or a pipe is written to, never replaced. Raises DiptychError.
    """
    try:
        if _is_no_file(path):
            with path.open("ab", buffering=0) as device:
                for piece in content:
                    device.write(piece)
            return
        target = Path(os.path.realpath(path))
        temporary = aside(target)
        try:
            with temporary.open("wb") as file:
                file.writelines(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            sync(target.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritten(path, sum(map(len, content)), error) from error


def refuse_unwritable(path: Path | None) -> None:
    """Before the work whose result is to be written there. Raises DiptychError for a folder, and where there is none to
    write in, or it may not be written in."""
    if path is None or _is_no_file(path):
        return
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        why = "it may not be written in" if folder.is_dir() else "there is no such folder"
        raise DiptychError(f"cannot write {path}: {folder}: {why}; make it, or choose another place")


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A new folder to write into; when all went well it is flushed to the disk and takes the target's place.

    Errors pass, and leave the target as it was.
    """
    sweep(target.parent, target.name)
    temporary = aside(target)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                sync(Path(folder, name))
            sync(Path(folder))
        if target.exists():
            old = aside(target, "old")
            target.rename(old)
            temporary.rename(target)
            shutil.rmtree(old)
        else:
            temporary.rename(target)
        sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def copy_folder(source: Path, target: Path) -> None:
    """All files below, as one: the target is there whole or not at all. Raises DiptychError, also for links that lead
    out of the source, as one to a private file would in the folder of another."""
    refuse_links_out(source)
    try:
        with whole_folder(target) as temporary:
            shutil.copytree(source, temporary, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise DiptychError(
            f"cannot copy {source} to {target}: {error}; make room and run the same command again"
        ) from error


def refuse_links_out(folder: Path) -> None:
    """Raises DiptychError where a file below lies elsewhere, but for those that the hub's cache keeps beside."""
    real = folder.resolve()
    home = next((parent.parent for parent in real.parents if parent.name == "snapshots"), real)
    for path in _links_below(folder):
        if not (target := Path(os.path.realpath(path))).is_relative_to(home):
            raise DiptychError(
                f"{path} is a link that leads out of {folder}, to {target}; nothing was done: put the file itself "
                "there, or remove the link"
            )


def text_of(path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    """All of a file. Raises OSError as `refuse_endless`, and ValueError for what is no text."""
    refuse_endless(path)
    return path.read_text(encoding, errors)


def bytes_of(path: Path) -> bytes:
    """All of a file. Raises OSError as `refuse_endless`."""
    refuse_endless(path)
    return path.read_bytes()


def refuse_endless(path: Path) -> None:
    """Raises OSError where a pipe or a device is, or nothing: who reads a pipe waits for its writer without end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.ESPIPE, "a pipe or a device, which is not read; write what it gives to a file", str(path))


def check_name(path: Path) -> None:
    """Raises DiptychError for a name that is not UTF-8, which the libraries of weights and words cannot open."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DiptychError(
            f"the name {os.fsencode(path)!r} is not UTF-8, and what reads weights and words cannot open it; rename it, "
            "or give another"
        ) from error


def parse_json(text: str | bytes) -> Any:
    """What a file of others says. Raises ValueError for what is no JSON, or is nested too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("brackets in brackets, too deep to be read") from error


def checksum(path: Path) -> int:
    """CRC-32 of a file: it sees damage, not forgery. Raises OSError as `refuse_endless`."""
    refuse_endless(path)
    check, buffer = 0, bytearray(2**20)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            check = zlib.crc32(memoryview(buffer)[:count], check)
    return check


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, read in pieces. Raises OSError as `refuse_endless`."""
    refuse_endless(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(value: Any) -> str:
    """SHA-256 of a value as JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def aside(path: Path, what: str = "partial") -> Path:
    """Where this process writes before the path gets its name."""
    return path.with_name(f".{path.name}.{os.getpid()}.{what}")


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left below a folder, or directly in it of one name.

    A folder that was being replaced takes its place again where the new one is not there.
    """
    found = (folder.glob(f".{name}.*") if name is not None else _left_below(folder)) if folder.is_dir() else ()
    for path in sorted(found):
        parts = _LEFT.fullmatch(path.name)
        if parts is None or _in_use(path, int(parts[2])):
            continue
        target = path.with_name(parts[1])
        if parts[3] == "old" and not target.exists():
            path.rename(target)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def holds_something(path: Path) -> bool:
    """Whether a file is there, or a folder with more in it than the lock of the command that asks."""
    return path.exists() and not (path.is_dir() and all(inside.name.startswith(".") for inside in path.iterdir()))


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _links_below(folder: Path) -> Iterator[Path]:
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield Path(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))


def _left_below(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        yield from (Path(here, name) for name in (*folders, *names) if _LEFT.fullmatch(name))


def _in_use(path: Path, pid: int) -> bool:
    """Whether the process that made it lives; another may have its number by now, and a dead one keeps its own."""
    try:
        maker = psutil.Process(pid)
        return maker.status() != psutil.STATUS_ZOMBIE and maker.create_time() <= path.lstat().st_mtime + 1
    except (psutil.Error, OSError):
        return False


def _is_no_file(path: Path) -> bool:
    """Whether a device, a pipe or an open stream is there. Raises DiptychError where it is a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise DiptychError(f"{path} is a folder; give the name of a file in it")
    stream = os.path.realpath(path.parent)
    return not stat.S_ISREG(mode) or stream == "/dev" or stream.startswith("/proc/")


def _unwritten(path: Path, size: int, error: OSError) -> DiptychError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(path.parent).free
        return DiptychError(
            f"the disk is full: {path} needs {size / 2**20:.1f} MiB, {free / 2**20:.1f} MiB are free; "
            "make room and run the same command again"
        )
    return DiptychError(f"cannot write {path}: {error.strerror}; choose another place")
