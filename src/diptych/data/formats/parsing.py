"""Reading files that others wrote: every surprise becomes a DataError that says what, where and the way out."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from diptych.core import Record
from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of
from diptych.vision.archives import is_there

_SURROGATE = re.compile("[\ud800-\udfff]")
_HUGE = 1e15
_LONGEST = 1_000_000
_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}


def _kind(value: object) -> str:
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


class Entry:
    """A value of a JSON file that knows where it stands. Large files have millions, so their places are told late."""

    __slots__ = ("_inside", "_step", "value")

    def __init__(self, value: Any, inside: str | Entry, step: str | int = "") -> None:
        """`inside` the file (with its line, where it has one value a line), or the entry whose `step` this is."""
        self.value, self._inside, self._step = value, inside, step

    @property
    def where(self) -> str:
        """Such as `a.json: annotations[3].caption`."""
        if isinstance(self._inside, str):
            return self._inside
        outer, first = self._inside.where, isinstance(self._inside._inside, str)
        if isinstance(self._step, int):
            return f"{outer}: [{self._step}]" if first else f"{outer}[{self._step}]"
        return f"{outer}: {self._step}" if first else f"{outer}.{self._step}"

    def refuse(self, found: str, wanted: str) -> NoReturn:
        raise DataError(f"{self.where}: found {found}, wanted {wanted}; correct the file there, or fetch it again")

    def __getitem__(self, name: str) -> Entry:
        if not isinstance(self.value, dict):
            self.refuse(_kind(self.value), f"an object with `{name}`")
        if name not in self.value:
            has = ", ".join(f"`{key}`" for key in list(self.value)[:8]) or "nothing"
            self.refuse(f"an object with {has}", f"one with `{name}`")
        return Entry(self.value[name], self, name)

    def get(self, name: str) -> Entry | None:
        """What may be left out."""
        return self[name] if isinstance(self.value, dict) and name in self.value else None

    def names(self) -> list[str]:
        if not isinstance(self.value, dict):
            self.refuse(_kind(self.value), "an object")
        return list(self.value)

    def items(self, length: int | None = None) -> list[Entry]:
        """The entries of a list, of this length where one is given."""
        if not isinstance(self.value, list):
            self.refuse(_kind(self.value), "a list")
        if length is not None and len(self.value) != length:
            self.refuse(f"a list of {len(self.value)}", f"one of {length}")
        return [Entry(value, self, number) for number, value in enumerate(self.value)]

    def each(self) -> Iterator[Entry]:
        """The same one by one, for lists of millions."""
        if not isinstance(self.value, list):
            self.refuse(_kind(self.value), "a list")
        return (Entry(value, self, number) for number, value in enumerate(self.value))

    def text(self) -> str:
        if not isinstance(self.value, str):
            self.refuse(_kind(self.value), "a text")
        if not self.value.strip():
            self.refuse("an empty text", "words")
        if not self.value.isascii() and _SURROGATE.search(self.value):
            self.refuse("half a surrogate pair, which is no Unicode text", "words")
        return self.value

    def text_of(self, name: str) -> str:
        """`self[name].text()`, quicker: of what is well, sets have millions."""
        value = self.value.get(name) if isinstance(self.value, dict) else None
        good = isinstance(value, str) and value.isascii() and value and not value.isspace()
        return value if good else self[name].text()  # type: ignore[return-value]

    def words_of(self, name: str) -> str:
        """The text of this name without space around it, which may leave nothing."""
        value = self.value.get(name) if isinstance(self.value, dict) else None
        good = isinstance(value, str) and (value.isascii() or value.isspace() or not value)
        return (value if good else self[name].text()).strip()  # type: ignore[union-attr]

    def integer_of(self, name: str) -> int:
        """`self[name].integer()`, quicker."""
        value = self.value.get(name) if isinstance(self.value, dict) else None
        return value if type(value) is int else self[name].integer()

    def lacks_words(self, name: str) -> bool:
        """Whether the text of this name is empty."""
        value = self.value.get(name) if isinstance(self.value, dict) else None
        return isinstance(value, str) and (not value or value.isspace())

    def is_empty(self) -> bool:
        """Whether a text or a list has nothing in it."""
        return not self.value.strip() if isinstance(self.value, str) else self.value == []

    def integer(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.refuse(f"{_kind(self.value)} ({str(self.value)[:40]})", "a whole number")
        return self.value

    def number(self) -> float:
        good = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not good or not abs(self.value) < _HUGE:  # a NaN is not below anything
            self.refuse(f"{_kind(self.value)} ({str(self.value)[:40]})", "a finite number")
        return float(self.value)

    def size(self) -> int:
        """A picture's width or height."""
        side = self.integer()
        if not 1 <= side < _LONGEST:
            self.refuse(str(side)[:40], f"1 to {_LONGEST} pixels")
        return side

    def flag(self) -> bool:
        """True or false, also as the words `True` and `False` that NLVR2 has."""
        if self.value in ("True", "False"):
            return bool(self.value == "True")
        if not isinstance(self.value, bool):
            self.refuse(f"{_kind(self.value)} ({str(self.value)[:40]})", "true or false")
        return self.value

    def corners(self, width: int, height: int) -> tuple[float, float, float, float]:
        """COCO's [left, top, width, height] in pixels as fractions; what reaches beyond the picture is cut."""
        left, top, across, down = (entry.number() for entry in self.items(4))
        return self._fractions(left, top, left + across, top + down, width, height)

    def corner_pixels(self, width: int, height: int) -> tuple[float, float, float, float]:
        """[x1, y1, x2, y2] in pixels, perhaps with a score behind, as fractions."""
        entries = self.items()[:4] if isinstance(self.value, list) and len(self.value) == 5 else self.items(4)
        x1, y1, x2, y2 = (entry.number() for entry in entries)
        return self._fractions(x1, y1, x2, y2, width, height)

    def _fractions(
        self, x1: float, y1: float, x2: float, y2: float, width: int, height: int
    ) -> tuple[float, float, float, float]:
        box = (max(0.0, x1 / width), max(0.0, y1 / height), min(1.0, x2 / width), min(1.0, y2 / height))
        if box[0] >= box[2] or box[1] >= box[3]:
            self.refuse(f"the box {self.value}", f"one with an extent inside {width} x {height} pixels")
        return box


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


def _parse(text: str, where: str, whole: bool) -> Entry:
    try:
        with uncollected():
            return Entry(json.loads(text, object_pairs_hook=_no_duplicates), where)
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


def read_json(path: Path | Entry) -> Entry:
    """A file's value; one that was read already as it is."""
    return path if isinstance(path, Entry) else _parse(read_text(path), path.name, whole=True)


def read_json_lines(path: Path) -> Iterator[Entry]:
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


def parsed_line(path: Path) -> Entry:
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


def picture_at(folder: Path | Pictures | None, name: str, where: str | Entry) -> Path | None:
    """The picture with this name in the folder, which must be there; without a folder, none is looked for.

    In `Pictures` it need not be there.
    """
    if folder is None:
        return None
    if name.startswith("/") or "\0" in name or (".." in name and ".." in name.split("/")):
        inside = folder.folders[0] if isinstance(folder, Pictures) else folder
        raise DataError(f"{_told(where)}: found the picture name {name!r}, wanted one inside {inside}; correct it")
    if isinstance(folder, Pictures):
        return folder.at(name)
    path = folder / name
    try:
        there = is_there(path)
    except OSError:  # a name too long for the file system
        there = False
    if not there:
        way_out = "fetch it, or give another folder of pictures"
        raise DataError(f"{_told(where)}: found no picture {path}, wanted one; {way_out}")
    return path


def _told(where: str | Entry) -> str:
    return where.where if isinstance(where, Entry) else where


class Once:
    """Refuses what comes a second time."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._seen: dict[object, str | Entry] = {}

    def check(self, value: object, where: str | Entry) -> None:
        """`where` it stands: the entry itself is cheaper, as its place is told where it is refused alone."""
        if value in self._seen:
            raise DataError(
                f"{_told(where)}: found the {self._what} {value} a second time (first in {_told(self._seen[value])}), "
                "wanted each once; remove one of the two"
            )
        self._seen[value] = where


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
