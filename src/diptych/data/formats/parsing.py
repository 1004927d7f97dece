"""Reading files that others wrote: every surprise becomes a DataError with what, where and how to correct it."""

import gc
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from unicodedata import normalize

from diptych.core import Record
from diptych.data.formats.values import JsonValue
from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of
from diptych.vision.archives import is_there

T = TypeVar("T")


@dataclass
class Skips:
    """Counts of entries that were left out because nothing can be learnt from them, each with its first place."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, where: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        self.first.setdefault(what, where)

    def filled(self, texts: list[str], what: str, where: str) -> tuple[str, ...]:
        """Return the texts with words; count the others as `what`, at `where[0]`, `where[1]`, ..."""
        for at, text in enumerate(texts):
            if not text.strip():
                self.add(what, f"{where}[{at}]")
        return tuple(text for text in texts if text.strip())

    def __str__(self) -> str:
        return "; ".join(f"{what}: {count} (the first: {self.first[what]})" for what, count in self.counts.items())


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name `{twice}` twice in one object")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates)


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch off garbage collection, which takes most of the time where millions of small objects are made."""
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
        problem = error if isinstance(error, ValueError) else "JSON nested too deep"
        raise DataError(f"{where}: found {problem}, wanted plain JSON; correct the file there") from None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None


def read_text(path: Path) -> str:
    """Return the text of a file without its byte order mark. Raises DataError."""
    try:
        with _readable(path):
            return bytes_of(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: found bytes that are not UTF-8 (at byte {error.start}), wanted UTF-8 text; convert it, "
            f"for instance: iconv -f latin1 -t utf-8 {path.name}"
        ) from None


def read_json(path: Path) -> JsonValue:
    """Return the value of a JSON file. Raises DataError, also for a name that occurs twice in one object."""
    return _parse(read_text(path), path.name, whole=True)


def read_json_lines(path: Path) -> Iterator[JsonValue]:
    """Yield the value of each line that is not empty."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield _parse(line, f"{path.name} line {number}", whole=False)


def read_items(path: Path, kind: type[T], field: str, what: str) -> Iterator[tuple[T, JsonValue]]:
    """Yield each line as a struct, with its value. `field` occurs once in the file, and is called `what` in errors."""
    once = Once(what)
    for value in read_json_lines(path):
        item = value.read(kind)
        once.check(getattr(item, field), value.where())
        yield item, value


def first_line(path: Path) -> tuple[str, bool]:
    """Return the first non-empty line, and True if another follows; bytes that are not UTF-8 are replaced."""
    with _readable(path), path.open(encoding="utf-8-sig", errors="replace") as file:
        lines = (line.strip() for line in file if line.strip())
        return next(lines, ""), next(lines, None) is not None


def parsed_line(path: Path) -> JsonValue:
    """Return the value of the first of JSON lines."""
    return _parse(first_line(path)[0], f"{path.name} line 1", whole=False)


@dataclass(frozen=True)
class Pictures:
    """Folders of images, many of which may be missing.

    `wanted` True: the record of a missing image has the path where it was expected, so that it can be counted. False:
    it has no image.
    """

    folders: tuple[Path, ...]
    wanted: bool = True


def picture_at(folder: Path | Pictures | None, name: str, where: str, skips: Skips | None = None) -> Path | None:
    """Return the path of an image, which must be in the folder (in `Pictures` it may be missing); None without folder.

    A name that is there in another form of Unicode, or with / for a backslash, is matched and counted in `skips`.
    Raises DataError, with the place `where`, for a missing image and for a name that leads out of the folder.
    """
    if folder is None:
        return None
    if name.startswith("/") or "\0" in name or (".." in name and ".." in name.split("/")):
        inside = folder.folders[0] if isinstance(folder, Pictures) else folder
        raise DataError(f"{where}: found the picture name {name!r}, wanted one inside {inside}; correct it")
    folders = folder.folders if isinstance(folder, Pictures) else (folder,)
    for form in chain((name,), _spellings(name)):
        for one in folders:
            with suppress(OSError):  # a name too long for the file system
                if is_there(f"{one}/{form}"):  # paths are made only where needed: sets have many names
                    if form is not name and skips is not None:
                        skips.add("picture names matched in another Unicode form, or with / for \\", where)
                    return one / form
    if isinstance(folder, Pictures):
        return folders[0] / name if folder.wanted else None
    missing = folder / name
    raise DataError(f"{where}: found no picture {missing}, wanted one; fetch it, or name its folder (--images)")


def _spellings(name: str) -> Iterator[str]:
    """Yield the other forms of an image's name that lead into the same folder."""
    for one in dict.fromkeys((name, name.replace("\\", "/"))):
        if not one.startswith("/") and ".." not in one.split("/"):
            yield from (form for form in (one, normalize("NFC", one), normalize("NFD", one)) if form != name)


class Once:
    """Refuses a value that occurs a second time."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.seen: dict[Any, str] = {}  # the place of each value

    def check(self, value: object, where: str) -> None:
        if value in self.seen:
            raise DataError(
                f"{where}: found the {self._what} {value} a second time (first in {self.seen[value]}), "
                "wanted each once; remove one of the two"
            )
        self.seen[value] = where


def key_of_name(name: str) -> str:
    """Return the key of an image that its data set names by file: the name without its ending."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}{file.rpartition('.')[0] or file}"


def key_of(split: str, image_id: int) -> str:
    """Return the key of an image that its data set names by number."""
    return f"{split}/{image_id:06d}"


def answer_kind(answers: tuple[str, ...]) -> str:
    """Return VQA v2's answer type, by the most frequent answer."""
    most = max(set(answers), key=lambda answer: (answers.count(answer), answer)).lower().strip(" .!?").replace(",", "")
    if most in ("yes", "no"):
        return "yes/no"
    return "number" if most.isdecimal() else "other"


def combined(*sources: Iterable[Record]) -> list[Record]:
    """Join the records of each image from several readers; of single values, the first source's count.

    Texts are joined in the order of the sources. Raises DataError for an image in two splits.
    """
    joined: dict[str, Record] = {}
    for record in (record for source in sources for record in source):
        old = joined.get(record.key)
        if old is not None and old.split != record.split:
            raise DataError(
                f"found the splits {old.split} and {record.split}, wanted one split a picture; leave out one file, "
                "or name it in data of its own",
                key=record.key,
            )
        joined[record.key] = record if old is None else old.joined(record)
    return list(joined.values())
