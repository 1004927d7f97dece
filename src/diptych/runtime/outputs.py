"""The rules for which files and folders a command may write (listed in SECURITY.md).

A command may write to a folder that does not exist, is empty, or has a MARKER of the same kind. It may replace a whole
folder only if all files in it are listed in the marker and unchanged. It may replace a file that Diptych wrote as an
output (`noted`) and that is unchanged. With `--force` it may replace any file.

A marker is a file with a line `diptych KIND`. If the folder was written as a whole, lines `SHA256  NAME` for its files
follow. The list of output files, in the user's cache, has such lines with absolute names.
"""

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, get_args

from diptych.runtime.errors import CheckpointError, DiptychError, OutputError, explained
from diptych.runtime.files import (
    MARKER,
    aside,
    files_below,
    is_aside,
    is_stream,
    refuse_links_out,
    replacing,
    sha256_of,
    sweep,
    text_of,
    write_atomically,
)
from diptych.runtime.lock import FILE as LOCK
from diptych.runtime.lock import held

Kind = Literal[
    "store", "run", "detector run", "model", "detector", "demo", "world", "web", "mined", "scorer", "judge", "tokens",
    "pairs", "drawings", "cache", "tars", "programs", "card",
]  # fmt: skip
OWN = (MARKER, LOCK)
SHOWN = 5  # an error message shows at most this number of file names


def refuse_folder(folder: Path, kind: Kind | None) -> None:
    """Raise OutputError unless a command may write a folder of this kind at `folder`.

    If `kind` is None, only an empty or new folder is accepted.
    """
    if folder.is_dir():
        others = sorted(path.name for path in folder.iterdir() if not _is_own(path))
        if others and kind is None:
            raise OutputError(f"{folder} exists already ({_some(others)}); choose another folder, or delete it")
        if others and (there := _kind_of(folder)) != kind:
            what = f"a folder of kind {there}" if there else f"not empty ({_some(others)})"
            raise OutputError(
                f"{folder} is {what}, expected an empty folder or one of kind {kind}; choose another folder"
            )
    # `lexists` must be called first, because another rank may make the folder between the two calls.
    elif os.path.lexists(folder) and not folder.is_dir():
        raise OutputError(f"{folder} exists and is not a folder; choose a new or empty folder")


def claim(folder: Path, kind: Kind) -> list[Path]:
    """Create a folder of this kind with its marker, or accept an existing one.

    Return the folders that were created, innermost first.
    """
    refuse_folder(folder, kind)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MARKER).exists():  # written atomically, because other ranks may read it
        own = aside(folder / MARKER)
        write_atomically(own, f"diptych {kind}\n".encode())
        # A link, unlike a rename, does not replace the marker of another rank, which may list files already.
        with suppress(OSError):  # there is one, or the disk has no links
            os.link(own, folder / MARKER)
        own.unlink() if (folder / MARKER).exists() else own.replace(folder / MARKER)
    return made


@contextmanager
def taken(folder: Path, kind: Kind) -> Iterator[None]:
    """Return a context in which a folder of this kind is claimed and locked.

    At the end, the folder is removed if nothing was written to it.
    """
    made = claim(folder, kind)
    try:
        with held(folder):
            yield
    finally:
        release(folder, made)


def release(folder: Path, made: Collection[Path]) -> None:
    """Remove the marker and the folders `made` by `claim`, if nothing else was written."""
    with suppress(OSError):  # rmdir raises OSError for a folder with temporary files, which is kept
        if folder in made and all(map(_is_own, folder.iterdir())):
            (folder / MARKER).unlink(missing_ok=True)
            for path in made:
                path.rmdir()


@contextmanager
def whole_folder(target: Path, kind: Kind) -> Iterator[Path]:
    """Return a context with a new folder to write into.

    At its end, the folder is flushed to disk and replaces `target`.

    If an error is raised in the context, `target` stays unchanged. Raises OutputError like `refuse_replaced`.
    """
    target = Path(os.path.realpath(target))
    sweep(target.parent, target.name)
    refuse_replaced(target, kind)
    with replacing(target, check=lambda: refuse_replaced(target, kind)) as temporary:
        temporary.mkdir(parents=True)
        if target.is_dir():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IRWXU)
        (temporary / MARKER).write_text(f"diptych {kind}\n", "utf-8")
        yield temporary
        files = [path for path in files_below(temporary) if path.is_file() and path != temporary / MARKER]
        lines = [f"{sha256_of(path)}  {path.relative_to(temporary).as_posix()}\n" for path in files]
        (temporary / MARKER).write_text(f"diptych {kind}\n{''.join(lines)}", "utf-8")


def refuse_replaced(target: Path, kind: Kind) -> None:
    """Raise OutputError if a folder has files that its marker does not list, or that have been changed."""
    refuse_folder(target, kind)
    if target.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise OutputError(f"{target} is the current folder and would be replaced; choose a folder inside it")
    files = (path for path in files_below(target) if not (path.parent == target and _is_own(path)))
    if others := _edited(target, files):
        raise OutputError(
            f"{target} would be replaced, but some of its files were added or changed after Diptych wrote it "
            f"({_some(sorted(others))}); move them, or pass another folder"
        )


def check_whole(folder: Path) -> None:
    """Raise CheckpointError if a file that was written with a folder (`whole_folder`) is missing or has changed."""
    for line in sorted(_lines(folder / MARKER)):
        name = line.partition("  ")[2]
        if name and not _is_noted(folder / name, Path(name), {line}):
            raise CheckpointError(f"{folder / name} is missing or has changed; copy {folder} again, or make it again")


def copy_folder(source: Path, target: Path, kind: Kind) -> None:
    """Copy a folder and all files below it, completely or not at all.

    Raises DiptychError, also for links that lead out of `source`. In another person's folder, such links may lead to
    private files.
    """
    refuse_links_out(source)
    problem, remedy = f"cannot copy {source} to {target}", "free disk space and try again"
    with explained(DiptychError, problem, remedy), whole_folder(target, kind) as temporary:
        ignored, mode = shutil.ignore_patterns(*OWN), stat.S_IMODE(temporary.stat().st_mode)
        shutil.copytree(source, temporary, ignore=ignored, copy_function=shutil.copyfile, dirs_exist_ok=True)
        for here, _, _ in os.walk(temporary):  # `copytree` copies the permissions of folders
            os.chmod(here, mode)


def refuse_inputs(output: Path | None, inputs: Iterable[Path]) -> None:
    """Raise OutputError if the output is also an input of the command. Real paths are compared."""
    if output is None:
        return
    real = os.path.realpath(output)
    for path in inputs:
        if os.path.realpath(path) == real or (output.exists() and path.exists() and output.samefile(path)):
            raise OutputError(f"{output} is an input of this command, so it cannot be the output; choose another path")


def refuse_file(path: Path, force: bool = False, noted: Path | None = None) -> None:
    """Raise OutputError if a file exists, unless Diptych wrote it and it is unchanged.

    `force`: print the name of the file instead of raising an error.

    `noted`: the file that lists what Diptych wrote: a folder's marker, or by default the list of output files. Streams
    and devices are always accepted.
    """
    if not path.exists() or is_stream(path):
        return
    real = Path(os.path.realpath(path))
    if _is_noted(real, Path(path.name) if noted else real, _lines(noted or noted_outputs())):
        return
    if not force:
        raise OutputError(
            f"{path} exists, and Diptych did not write it; choose another name, or pass --force to replace it"
        )
    if owner := next((one for one in real.parents if (one / MARKER).exists()), None):
        raise OutputError(f"{path} is in {owner}, where --force replaces no file; choose another name")
    print(f"diptych: replacing {path}, which has {path.stat().st_size:,} bytes", file=sys.stderr)


def note(path: Path, noted: Path | None = None) -> None:
    """Add a written file to the list `noted`, so that the same command may replace it later.

    If the user's cache cannot be written, nothing is listed, and a warning is printed.
    """
    name = path.name if noted else os.path.realpath(path)
    if path.is_file() and "\n" not in name:
        noted = noted or noted_outputs()
        try:
            noted.parent.mkdir(parents=True, exist_ok=True)
            with noted.open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{sha256_of(path)}  {name}\n")
        except OSError as error:
            print(f"diptych: cannot write {noted} ({error.strerror}), so only --force will replace {path}; set "
                  "XDG_CACHE_HOME to a folder that can be written", file=sys.stderr)  # fmt: skip


def refuse_edited(folder: Path, paths: Iterable[Path]) -> None:
    """Raise OutputError if files in a folder that Diptych made were added or changed after Diptych wrote them."""
    if others := _edited(folder, filter(os.path.lexists, paths)):
        raise edited(folder, others)


def edited(folder: Path, names: Iterable[str]) -> OutputError:
    """Return the error for files that would be replaced, but are not as Diptych wrote them."""
    return OutputError(
        f"{folder} would be written again, but some of its files were added or changed after Diptych wrote them "
        f"({_some(sorted(names))}); move them, or pass another folder"
    )


def is_unedited(folder: Path, path: Path) -> bool:
    """Return True if the marker of the folder lists a file with its present content."""
    return not _edited(folder, [path])


def write_noted(folder: Path, path: Path, content: bytes) -> None:
    """Write a file in a folder that Diptych made, and list it in the folder's marker.

    It is listed before it is written, so that a killed command can be repeated.
    """
    line = f"{hashlib.sha256(content).hexdigest()}  {path.relative_to(folder).as_posix()}"
    if line not in _lines(folder / MARKER):
        write_atomically(folder / MARKER, f"{text_of(folder / MARKER)}{line}\n".encode())
    write_atomically(path, content)


def noted_outputs() -> Path:
    """Return the path of the list of output files."""
    return user_cache() / "outputs"


def user_cache() -> Path:
    """Return the path of Diptych's folder in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "diptych"


def folder_in_cache(name: str, instead: str = "") -> Path:
    """Create a folder in the user's cache. Raises DiptychError, with another way out if `instead` is one."""
    folder = user_cache() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"cannot make {folder}, in the user's cache: {error.strerror}"
        raise DiptychError(f"{why}; {instead}set XDG_CACHE_HOME to a folder that can be written") from error
    return folder


def _edited(folder: Path, paths: Iterable[Path]) -> list[str]:
    """Return the names in `folder` of files that its marker does not list with their present content."""
    noted, names = _lines(folder / MARKER), [path.relative_to(folder) for path in paths]
    return [name.as_posix() for name in names if not _is_noted(folder / name, name, noted)]


def _kind_of(folder: Path) -> str | None:
    """Return the kind of a folder that Diptych made, or None for other folders."""
    with suppress(OSError, ValueError):
        word, _, kind = text_of(folder / MARKER).partition("\n")[0].partition(" ")
        return kind if word == "diptych" and kind in get_args(Kind) else None
    return None


def _is_own(path: Path) -> bool:
    """Return True for Diptych's markers, locks and temporary files. Locks and markers must be plain files."""
    return is_aside(path) or (path.name in OWN and path.is_file() and not path.is_symlink())


def _lines(noted: Path) -> set[str]:
    with suppress(OSError):
        return set(text_of(noted, errors="surrogateescape").splitlines())
    return set()


def _is_noted(path: Path, name: Path, noted: Collection[str]) -> bool:
    return path.is_file() and not path.is_symlink() and f"{sha256_of(path)}  {name.as_posix()}" in noted


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
