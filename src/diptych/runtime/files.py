"""Write files and folders completely or not at all: under a temporary name, then flushed to disk and renamed.

.NAME.diptych-PID.partial     the new file or folder NAME while it is written, in the same folder
.NAME.diptych-PID.old         the old folder NAME while the new one replaces it

If a command is killed, the next run of the same command removes its temporary files (`sweep`). It does so only in
folders that Diptych made (`runtime.outputs`).
"""

import errno
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import psutil

from diptych.runtime.errors import DataError, DiptychError, explained

T = TypeVar("T")
MARKER = ".diptych"  # the file that marks a folder as an output of Diptych
SETTLED = 2 * 10**9  # ns; see `stamp_of`
_LEFT = re.compile(r"\.(.+)\.diptych-(\d+)\.(partial|old)")


def write_atomically(path: Path, *content: bytes | memoryview) -> None:
    """Write the pieces of `content` to a temporary file, flush it to disk, and rename it to `path`.

    A reader sees either the old file or the new one. If `path` is a link, its target is replaced. A device or a pipe is
    written to directly. Raises DiptychError.
    """
    try:
        if is_stream(path):
            with path.open("ab", buffering=0) as device:
                for piece in content:
                    device.write(piece)
            return
        target = Path(os.path.realpath(path))
        with replacing(target, flush=False) as temporary, temporary.open("wb") as file:
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        sync(target.parent)
    except OSError as error:
        raise _unwritten(path, sum(map(len, content)), error) from error


@contextmanager
def replacing(target: Path, flush: bool = True, check: Callable[[], object] = lambda: None) -> Iterator[Path]:
    """Return a context with a temporary path, at which a file or a folder is written.

    At its end, what was written is flushed to disk (if `flush`), and replaces `target`. If an error is raised in the
    context, or by `check`, which is called last, `target` stays unchanged and the temporary path is removed.
    """
    temporary, old = aside(target), aside(target, "old")
    try:
        yield temporary
        if flush:
            _flush(temporary)
        check()
        if target.is_dir():
            target.rename(old)
        temporary.replace(target)
        _remove(old)
        if flush:
            sync(target.parent)
    finally:
        _remove(temporary)


def refuse_unwritable(path: Path | None) -> None:
    """Check, before long work, that its result can be written to `path`.

    Raises DiptychError if `path` is a folder, or if the folder that contains it is missing or read-only.
    """
    if path is None or is_stream(path):
        return
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        why = "is read-only; make it writable" if folder.is_dir() else "does not exist; create it"
        raise DiptychError(f"cannot write {path}: its folder {folder} {why}, or choose another folder")


def files_below(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted by path. A link to a folder counts as a file and is not entered.

    Raises DataError if a folder cannot be read. `Path.rglob` would leave its files out.
    """
    return sorted(
        Path(here, name)
        for here, folders, names in os.walk(folder, onerror=refuse_unread)
        for name in (*names, *(one for one in folders if os.path.islink(os.path.join(here, one))))
    )


def refuse_unread(error: OSError) -> None:
    """Raise DataError for a folder that `os.walk` cannot read. A folder that is gone has no files."""
    if error.errno != errno.ENOENT:
        raise DataError(f"cannot read the folder {error.filename}: {error.strerror}; make it readable, or move it")


def refuse_links_out(folder: Path) -> None:
    """Raise DiptychError if a symbolic link below `folder` leads out of it.

    In the hub's cache, links may lead to other folders of the cache.
    """
    real = folder.resolve()
    home = next((parent.parent for parent in real.parents if parent.name == "snapshots"), real)
    inside = (os.path.join(here, name) for here, folders, names in os.walk(folder) for name in (*folders, *names))
    for path in filter(os.path.islink, inside):
        if not (target := Path(os.path.realpath(path))).is_relative_to(home):
            link = f"{path} is a link that leads out of {folder}, to {target}"
            raise DiptychError(f"{link}; nothing was done: replace the link with the file, or remove the link")


def encoding_of(start: bytes) -> str:
    """Return Python's codec for a text that begins with these bytes. The codec removes a byte order mark.

    Without a mark, a text is UTF-16 if one byte of its first character, and of most others, is NUL; else UTF-8.
    """
    encoding = json.detect_encoding(start)
    high = start[encoding == "utf-16-le" : 4096 : 2]
    marked = encoding in ("utf-8-sig", "utf-16", "utf-32")
    return encoding if marked or (encoding.startswith("utf-16") and 2 * high.count(0) > len(high)) else "utf-8"


def as_text(content: bytes, errors: str = "strict") -> str:
    """Return the text of bytes from outside, without their byte order mark.

    Raises ValueError if the bytes do not have the encoding that `encoding_of` finds.
    """
    return content.decode(encoding_of(content), errors)


def opened_text(path: Path, errors: str = "strict") -> TextIOWrapper:
    """Open a file whose text, as by `as_text`, is read in parts. Lines end with `\n`, `\r\n` or `\r`."""
    file = path.open("rb")
    return TextIOWrapper(file, encoding_of(file.peek(4)), errors)


def text_of(path: Path, errors: str = "strict") -> str:
    """Return the text of a file. Raises OSError like `refuse_endless`, and ValueError like `as_text`."""
    refuse_endless(path)
    with opened_text(path, errors) as file:
        return file.read()


def bytes_of(path: Path) -> bytes:
    """Return the bytes of a file. Raises OSError like `refuse_endless`."""
    refuse_endless(path)
    return path.read_bytes()


def refuse_endless(path: Path) -> None:
    """Raise OSError if a path is missing, or is a pipe or a device, which may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.ESPIPE, "a pipe or a device, expected a file; write its content to a file", str(path))


def check_name(path: Path) -> None:
    """Raise DiptychError if a file name is not UTF-8, because the libraries safetensors and tokenizers cannot open such
    files."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DiptychError(f"the name {os.fsencode(path)!r} is not UTF-8; rename the file, or pass another") from error


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError for invalid JSON, or if it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error


def saved_json(path: Path, kind: type[T]) -> T:
    """Return the value of a JSON file that Diptych wrote. Raises DataError if it is damaged, or not of this kind."""
    with explained(DataError, f"{path} is damaged", "restore it, or choose another folder"):
        value = parse_json(text_of(path))
        if not isinstance(value, kind):
            raise ValueError(f"found {type(value).__name__}, expected {kind.__name__}")
    return value


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file. It detects damage, but not manipulation. Raises OSError like `refuse_endless`."""
    refuse_endless(path)
    check, buffer = 0, bytearray(2**20)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            check = zlib.crc32(memoryview(buffer)[:count], check)
    return check


def stamp_of(path: Path) -> str:
    """Return the size, times and inode of a file, which show that it was changed or replaced. Raises OSError.

    A file that was changed in the last 2 s has another stamp at each call, because it may change again without a new
    time.
    """
    now, file = time.time_ns(), path.stat()
    stamp = f"{file.st_size} {file.st_mtime_ns} {file.st_ctime_ns} {file.st_ino}"
    return stamp if file.st_ctime_ns < now - SETTLED else f"{stamp}, at {now}"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal. Raises OSError like `refuse_endless`."""
    refuse_endless(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(value: Any) -> str:
    """Return the SHA-256 of a value, serialised as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def aside(path: Path, what: str = "partial") -> Path:
    """Return the temporary path at which this process writes a file before it renames it to `path`.

    `what`: the ending, "partial" or "old".
    """
    return path.with_name(f".{path.name}.diptych-{os.getpid()}.{what}")


def is_aside(path: Path) -> bool:
    """Return True for temporary paths, as `aside` returns them."""
    return _LEFT.fullmatch(path.name) is not None


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files that killed processes left below a folder that Diptych made.

    With `name`, only the temporary folders of `folder`/`name` are removed, if they have a marker. If a process was
    killed while it replaced a folder, and the new folder is missing, the old one is restored.
    """
    if name is None:
        left = sorted(folder.rglob(".*.diptych-*"))
    else:
        left = sorted(marker.parent for marker in folder.glob(f".{glob.escape(name)}.diptych-*/{MARKER}"))
    for path in left:
        parts = _LEFT.fullmatch(path.name)
        if parts is None or _in_use(path, int(parts[2])):
            continue
        target = path.with_name(parts[1])
        if parts[3] == "old" and not target.exists():
            path.rename(target)
        else:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Flush a file, or a folder and all files below it, to disk."""
    for here, _, names in os.walk(path):
        for one in filter(Path.is_file, (Path(here, name) for name in names)):
            sync(one)
        sync(Path(here))
    if path.is_file():
        sync(path)


def sync(path: Path) -> None:
    """Flush a file to disk, or for a folder the names in it."""
    if os.name == "nt" and path.is_dir():
        return  # on Windows, a folder cannot be opened and flushed
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _in_use(path: Path, pid: int) -> bool:
    """Return True if the process that made the temporary path is still alive.

    If `pid` now belongs to a later process or a zombie, the result is False.
    """
    with suppress(psutil.Error, OSError):
        maker = psutil.Process(pid)
        return maker.status() != psutil.STATUS_ZOMBIE and maker.create_time() <= path.lstat().st_mtime + 1
    return False


def is_stream(path: Path) -> bool:
    """Return True for a device, a pipe or an open stream. Raises DiptychError for a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise DiptychError(f"{path} is a folder; pass the name of a file in it")
    stream = os.path.realpath(path.parent)
    return not stat.S_ISREG(mode) or stream == "/dev" or stream.startswith("/proc/")


def _unwritten(path: Path, size: int, error: OSError) -> DiptychError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        if is_stream(path):
            return DiptychError(f"the disk is full: {path} takes no more; choose another place")
        free = shutil.disk_usage(path.parent).free
        sizes = f"{path} needs {size / 2**20:.1f} MiB, but only {free / 2**20:.1f} MiB are free"
        return DiptychError(f"the disk is full: {sizes}; free disk space and run the same command again")
    return DiptychError(f"cannot write {path}: {error.strerror}; choose another place")
