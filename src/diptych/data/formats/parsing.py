"""Reading files that others wrote: every surprise becomes a DataError that says what, where and the way out."""

import gc
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diptych.core import Record
from diptych.data.formats.values import JsonValue
from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of
from diptych.vision.archives import is_there


@dataclass
class Skips:
    """What was passed over because it teaches nothing: how often, and where first."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, where: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        self.first.setdefault(what, where)

    def __str__(self) -> str:
        return "; ".join(f"{what}: {count} (the first: {self.first[what]})" for what, count in self.counts.items())


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name `{twice}` twice in one object")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's search for circles, which takes most of the time where millions of small objects are made."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _parse(text: str, where: str, whole: bool) -> JsonValue:
    try:
        with uncollected():
            return JsonValue(_DECODER.decode(text), where)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if whole else ""
        raise DataError(
            f"{where}: found no JSON ({error.msg}, {line}column {error.colno}), wanted JSON; correct the file there, "
            "or fetch it again"
        ) from None
    except (ValueError, RecursionError) as error:
        found = error if isinstance(error, ValueError) else "JSON nested too deep"
        raise DataError(f"{where}: found {found}, wanted plain JSON; correct the file there") from None


def read_text(path: Path) -> str:
    """A file's words; a byte order mark is dropped."""
    try:
        return bytes_of(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: found bytes that are not UTF-8 (at byte {error.start}), wanted UTF-8 text; convert it, "
            f"for instance: iconv -f latin1 -t utf-8 {path.name}"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None


def read_json(path: Path | JsonValue) -> JsonValue:
    """A file's value; one that was read already as it is."""
    return path if isinstance(path, JsonValue) else _parse(read_text(path), path.name, whole=True)


def read_json_lines(path: Path) -> Iterator[JsonValue]:
    """One entry a line; empty lines are passed over."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield _parse(line, f"{path.name} line {number}", whole=False)


def first_line(path: Path) -> tuple[str, bool]:
    """The first line that is not empty, and whether another follows; what is no UTF-8 is replaced."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            lines = (line.strip() for line in file if line.strip())
            return next(lines, ""), next(lines, None) is not None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None


def parsed_line(path: Path) -> JsonValue:
    """The first line of JSON lines."""
    return _parse(first_line(path)[0], f"{path.name} line 1", whole=False)


@dataclass(frozen=True)
class Pictures:
    """Folders that names of pictures start from, of which many may be missing.

    `wanted`: the record of a missing one has the path where it was to be, so that it can be counted; else none.
    """

    folders: tuple[Path, ...]
    wanted: bool = True

    def at(self, name: str) -> Path | None:
        """In the first folder that has it. A path is made where it is wanted alone: sets have many names."""
        for folder in self.folders:
            if is_there(f"{folder}/{name}"):
                return folder / name
        return self.folders[0] / name if self.wanted else None


def picture_at(folder: Path | Pictures | None, name: str, where: str) -> Path | None:
    """The picture with this name in the folder, which must be there; without a folder, none is looked for.

    In `Pictures` it need not be there.
    """
    if folder is None:
        return None
    if name.startswith("/") or "\0" in name or (".." in name and ".." in name.split("/")):
        inside = folder.folders[0] if isinstance(folder, Pictures) else folder
        raise DataError(f"{where}: found the picture name {name!r}, wanted one inside {inside}; correct it")
    if isinstance(folder, Pictures):
        return folder.at(name)
    path = folder / name
    try:
        there = is_there(path)
    except OSError:  # a name too long for the file system
        there = False
    if not there:
        way_out = "fetch it, or give another folder of pictures"
        raise DataError(f"{where}: found no picture {path}, wanted one; {way_out}")
    return path


class Once:
    """Refuses what comes a second time."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.seen: dict[Any, str] = {}  # where each is

    def check(self, value: object, where: str) -> None:
        if value in self.seen:
            raise DataError(
                f"{where}: found the {self._what} {value} a second time (first in {self.seen[value]}), "
                "wanted each once; remove one of the two"
            )
        self.seen[value] = where


def key_of_name(name: str) -> str:
    """The key of a picture that its data set knows by its file: the name without its ending."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}{file.rpartition('.')[0] or file}"


def key_of(split: str, image_id: int) -> str:
    """The key of a picture that its data set knows by a number."""
    return f"{split}/{image_id:06d}"


def answer_kind(answers: tuple[str, ...]) -> str:
    """VQA v2's answer type, by what most people said."""
    most = max(set(answers), key=lambda answer: (answers.count(answer), answer)).lower()
    if most in ("yes", "no"):
        return "yes/no"
    return "number" if most.isdecimal() else "other"


def combined(*sources: Iterable[Record]) -> list[Record]:
    """One record a picture, from readers that each know a part of it; the first to know something wins.

    Words are put together in the order of the sources.
    """
    found: dict[str, Record] = {}
    for record in (record for source in sources for record in source):
        old = found.get(record.key)
        found[record.key] = record if old is None else _joined(old, record)
    return list(found.values())


def _joined(first: Record, second: Record) -> Record:
    if first.split != second.split:
        raise DataError(
            f"found the splits {first.split} and {second.split}, wanted one split a picture; leave out one file, "
            "or name it in data of its own",
            key=first.key,
        )
    return first.joined(second)
