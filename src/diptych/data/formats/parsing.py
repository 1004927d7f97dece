"""Read files that other programs wrote. Errors state what was found, where, and how to correct it."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unicodedata import normalize

from diptych.data.formats.values import CORRECT, LOOKED_AT, Ambiguous, JsonValue, Words, text_of_id
from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import as_text, bytes_of, opened_text
from diptych.vision.archives import is_there

if TYPE_CHECKING:  # it imports torch, which readers of lists do without
    from diptych.core import Record

T = TypeVar("T")
V = TypeVar("V")
_NUMBERED = re.compile(r"(?:COCO_[A-Za-z0-9-]+_)?([0-9]{1,18})")
BAD = "invalid entries"
MOST_BAD, BAD_SHARE = 10, 0.01  # reading fails if more than this number and this share of entries are invalid
# An error lists at most NAMED places, with SEPARATOR between them, and at most SHOWN characters of a path.
NAMED, SEPARATOR, SHOWN = 3, " | ", 200
_ESCAPED = re.compile(r"[\udc80-\udcff]")
_SEPARATOR = re.compile(r"""\A"?sep=."?(?=[\r\n]|\Z)""")  # first line of a CSV for Excel


@dataclass
class Skips:
    """Counts of entries that were left out, by reason. `allowed` (--skip-bad): any number is accepted."""

    allowed: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)  # {reason: the first NAMED places where it occurred}
    _read: dict[str, list[int]] = field(default_factory=dict)  # {kind of entry: [number of invalid ones, of all]}

    @property
    def first(self) -> dict[str, str]:
        return {what: places[0] for what, places in self.places.items()}

    def add(self, what: str, where: str, count: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + count
        if len(places := self.places.setdefault(what, [])) < NAMED:
            places.append(where)

    def every(self, items: Iterable[V], take: Callable[[V], T], kind: str) -> list[T]:
        """Return `take(item)` for each item.

        If `take` raises a DataError, the item is skipped and counted with its location. `kind` names the items in
        errors, such as "line". Raises the first of these errors if no item is left.
        """
        kept, errors, bad, number = list[T](), list[DataError](), 0, 0
        for number, item in enumerate(items, start=1):  # noqa: B007  the last number is the count
            try:
                kept.append(take(item))
            except DataError as error:
                bad += 1
                errors += [error] if bad <= NAMED else []
        if errors and not kept:
            raise errors[0]
        tally = self._read.setdefault(kind, [0, 0])
        tally[0], tally[1] = tally[0] + bad, tally[1] + number
        for text in map(str, errors):
            self.add(BAD, text.removesuffix(CORRECT))
        if bad > NAMED:
            self.counts[BAD] += bad - NAMED
        return kept

    def each(self, value: JsonValue, kind: type[V], take: Callable[[V, JsonValue], T]) -> list[T]:
        """Return `take(entry, value)` for each entry of a JSON list, converted to `kind`; see `every`."""

        def one(at: int) -> T:
            entry = value.inner(at)
            return take(entry.read(kind), entry)

        return self.every(range(len(value.read(list))), one, getattr(kind, "__name__", "text"))

    def check(self) -> None:
        """Raise DataError if more than MOST_BAD and more than the share BAD_SHARE of any kind of entry are invalid."""
        for bad, number in self._read.values():
            if not self.allowed:
                refuse_many(bad, number, self.places.get(BAD, []))

    def filled(self, texts: JsonValue, what: str) -> tuple[str, ...]:
        """Return the texts in a JSON list that are not empty; count the others under the reason `what`."""
        return self.worded(texts, _TEXT, str, what)

    def worded(self, entries: JsonValue, kind: type[V], text_of: Callable[[V], str], what: str) -> tuple[str, ...]:
        """Return the text of each entry of a JSON list if it is not empty; count the others under the reason `what`."""

        texts: tuple[str, ...] = self.captions(entries, kind, lambda one: (text_of(one), None), what)["captions"]
        return texts

    def captions(
        self, entries: JsonValue, kind: type[V], of: Callable[[V], tuple[str, Any]], what: str
    ) -> dict[str, Any]:
        """Return texts and ids as fields of `Record`. `of`: entry -> (text, id). Empty texts are counted as `what`."""

        def one(entry: V, value: JsonValue) -> tuple[str, Any]:
            text, name = of(entry)
            if not text.strip():
                self.add(what, value.where())
            return text, name

        return named_captions(pair for pair in self.each(entries, kind, one) if pair[0].strip())

    def __str__(self) -> str:
        parts = ((what, f"{count:,}", SEPARATOR.join(self.places[what])) for what, count in self.counts.items())
        return "; ".join(f"{what}: {count} (the first: {places})" for what, count, places in parts)


_TEXT: Any = Words


def are_many(bad: int, number: int) -> bool:
    """Return True if `bad` is more than MOST_BAD and more than the share BAD_SHARE of `number`."""
    return bad > MOST_BAD and bad > number * BAD_SHARE


def refuse_many(bad: int, number: int, first: list[str], where: str = "") -> None:
    """Raise DataError if `are_many(bad, number)`. `first` has the messages of the first invalid entries."""
    if are_many(bad, number):
        raise DataError(
            f"{where}{bad:,} of {number:,} entries are invalid, expected at most {MOST_BAD} or {BAD_SHARE:.0%} (the "
            f"first: {SEPARATOR.join(first[:NAMED])}); correct them, or skip them with --skip-bad (Python: "
            "skip_bad=True)"
        )


_DECODER = json.JSONDecoder(object_pairs_hook=Ambiguous.unless_once)


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn off garbage collection in a `with` block, because it is slow while millions of objects are created."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def parse_value(text: str, where: str, whole: bool = False) -> JsonValue:
    try:
        with uncollected():
            value = _DECODER.decode(text)
        if isinstance(value, Ambiguous):
            raise ValueError(value)
        return JsonValue(value, where)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if whole else ""
        raise DataError(
            f"{where}: found no JSON ({error.msg}, {line}column {error.colno}), expected JSON; correct its syntax, or "
            "download the file again"
        ) from None
    except (ValueError, RecursionError) as error:
        problem = error if isinstance(error, ValueError) else "JSON nested too deep"
        raise DataError(f"{where}: found {problem}, expected plain JSON; correct it") from None


def _readable(path: Path) -> AbstractContextManager[None]:
    return explained(DataError, f"{path}: cannot be read", "check the path and its permissions")


def read_text(path: Path, errors: str = "strict") -> str:
    """Return the text of a file in UTF-8 or UTF-16, without its byte order mark. Raises DataError."""
    with _readable(path):
        content = bytes_of(path)
    try:
        return as_text(content, errors)
    except UnicodeDecodeError as error:
        now = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "latin1"
        raise DataError(
            f"{path}: found bytes that are not UTF-8 (at byte {error.start}), expected UTF-8 text; convert it, "
            f"for instance: iconv -f {now} -t utf-8 {path.name}"
        ) from None


def read_json(path: Path, where: str = "") -> JsonValue:
    """Return the value of a JSON file. Raises DataError; its message calls the file `where`, by default its name."""
    return parse_value(read_text(path), where or path.name, whole=True)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file. They end with `\\n`, or with `\\r` in a file without `\\n` (Excel on a Mac).

    Bytes that are not UTF-8 are escaped; `check_utf8` raises an error for a line that has such bytes.
    """
    text = _SEPARATOR.sub("", read_text(path, "surrogateescape"))
    if "\0" in text:  # not text: one error for the file, in place of one per line
        read_text(path)
    return text.split("\n" if "\n" in text else "\r")


def check_utf8(text: str, where: str) -> None:
    if not text.isascii() and (escaped := _ESCAPED.search(text)):
        raise DataError(
            f"{where}: found bytes that are not UTF-8 (at character {escaped.start() + 1}), expected UTF-8; convert "
            "the file, for instance: iconv -f latin1 -t utf-8"
        )


def each_line(path: Path, skips: Skips, take: Callable[[str, str], T]) -> list[T]:
    """Return `take(line, place)` for each line with text. Invalid lines are skipped and counted (`Skips.every`)."""

    def one(line: tuple[int, str]) -> T:
        check_utf8(line[1], where := f"{path.name} line {line[0]}")
        return take(line[1], where)

    return skips.every((line for line in enumerate(read_lines(path), start=1) if line[1].strip()), one, "line")


def each_json_line(path: Path, skips: Skips, take: Callable[[JsonValue], T]) -> list[T]:
    """Return `take(value)` for each JSON line. If a crash joined a truncated line to the next one, the next is read."""

    def one(line: str, where: str) -> T:
        try:
            value = parse_value(line, where)
        except DataError as error:
            start = re.match(r'\s*(\{\s*"[^"]*")', line)
            if start is None or (at := line.rfind(start[1])) <= start.start(1):
                raise
            taken = take(parse_value(line[at:], where))
            skips.add(BAD, str(error).removesuffix(CORRECT))
            return taken
        return take(value)

    return each_line(path, skips, one)


def read_items(
    path: Path, skips: Skips, kind: type[T], field: str, what: str, take: Callable[[T, JsonValue], object]
) -> None:
    """Call `take(struct, value)` for each JSON line. Values of `field` must be unique; errors call them `what`."""
    once = Once(what)

    def one(value: JsonValue) -> None:
        item = value.read(kind)
        with once.of(getattr(item, field), value.where()):
            take(item, value)

    each_json_line(path, skips, one)


def first_line(path: Path) -> tuple[str, bool]:
    """Return the first non-empty line, and True if there is a second. Bytes that are not UTF-8 become U+FFFD."""
    lines = first_lines(path, 2)
    return lines[0] if lines else "", len(lines) > 1


def first_lines(path: Path, most: int = LOOKED_AT) -> list[str]:
    with _readable(path), opened_text(path, "replace") as file:
        return list(islice((line.strip() for line in file if _SEPARATOR.sub("", line).strip()), most))


def parsed_line(path: Path, *names: str) -> JsonValue:
    """Return the first JSON line that has all these keys, else the first line. At most LOOKED_AT lines are searched."""
    for line in first_lines(path) if names else ():
        with suppress(DataError):
            value = parse_value(line, path.name)
            if isinstance(value.value, dict) and set(names) <= set(value.value):
                return value
    return parse_value(first_line(path)[0], f"{path.name} line 1")


@dataclass(frozen=True)
class Pictures:
    """Folders of images. Many of the images may be missing.

    If `wanted` is True, the record of a missing image has the path where it was expected, else no image.
    """

    folders: tuple[Path, ...]
    wanted: bool = True


def picture_at(folder: Path | Pictures | None, name: str, where: str, skips: Skips | None = None) -> Path | None:
    """Return the path of the image `name` in a folder; None if `folder` is None.

    In `Pictures` the image may be missing. A file whose name has another Unicode form, or / in place of a backslash, is
    accepted and counted in `skips`. Raises DataError, with the place `where`, for a missing image and for a path
    outside the folder.
    """
    if folder is None:
        return None
    if name.startswith("/") or "\0" in name or (".." in name and ".." in name.split("/")):
        inside = folder.folders[0] if isinstance(folder, Pictures) else folder
        raise DataError(f"{where}: found the image name {name!r}, expected a path inside {inside}; correct it")
    folders = folder.folders if isinstance(folder, Pictures) else (folder,)
    for form in chain((name,), _spellings(name)):
        for one in folders:
            with suppress(OSError):  # the name may be too long for the file system
                if is_there(f"{one}/{form}"):  # faster than a `Path` for each of many names
                    if form is not name and skips is not None:
                        skips.add("image names in another Unicode form, or with \\ for / (found and read)", where)
                    return one / form
    if isinstance(folder, Pictures):
        return folders[0] / name if folder.wanted else None
    missing = f"{folder / name}"
    # An invalid name may be very long, such as a row of numbers.
    missing = missing if len(missing) <= SHOWN else f"{missing[:SHOWN]}..."
    raise DataError(f"{where}: found no image {missing}; download it, or pass the images' folder with --images")


def _spellings(name: str) -> Iterator[str]:
    """Yield other spellings of an image's name: with / for backslashes, and in the Unicode forms NFC and NFD."""
    for one in dict.fromkeys((name, name.replace("\\", "/"))):
        if not one.startswith("/") and ".." not in one.split("/"):
            yield from (form for form in (one, normalize("NFC", one), normalize("NFD", one)) if form != name)


class Once:
    """Raises DataError for a value that occurs a second time, such as a duplicate id."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.seen: dict[Any, str] = {}  # {value: location of its first occurrence}

    def check(self, value: object, where: str) -> None:
        if value in self.seen:
            raise DataError(
                f"{where}: found the {self._what} {value} a second time (first in {self.seen[value]}), "
                "expected each once; remove one of the two"
            )
        self.seen[value] = where

    @contextmanager
    def of(self, value: object, where: str) -> Iterator[None]:
        """Check a value, then run the `with` block, which reads its entry. If this fails, the value may occur again."""
        self.check(value, where)
        try:
            yield
        except DataError:
            del self.seen[value]
            raise


def key_of_name(name: str) -> str:
    """Return the key of an image with this file name: the name without its suffix."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}{file.rpartition('.')[0] or file}"


def number_of_name(key: str) -> int | None:
    """Return the number in a COCO name, such as COCO_val2014_000000000042, or in a name of only digits; else None."""
    match = _NUMBERED.fullmatch(key.rpartition("/")[2])
    return None if match is None else int(match[1])


def image_id_of(name: str, number: int | None) -> int | None:
    """Return `number` as `Record.image_id`, or None if the file name has this number already."""
    return None if number == number_of_name(key_of_name(name)) else number


def named_captions(captions: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields `captions` and `caption_ids` of a `Record`, from pairs of a caption and its id."""
    listed = list(captions)
    ids = tuple(text_of_id(given) or "" for _, given in listed)
    return {"captions": tuple(text for text, _ in listed), "caption_ids": ids if any(ids) else ()}


def key_of(split: str, image_id: int) -> str:
    """Return the key of an image that has a number and no file name, such as `train/000007`."""
    return f"{split}/{image_id:06d}"


def answer_kind(answers: tuple[str, ...]) -> str:
    """Return VQA v2's answer type of the most frequent answer: yes/no, number or other (also without answers)."""
    most = max({*answers, ""}, key=lambda one: (answers.count(one), one)).lower().strip(" .!?").replace(",", "")
    if most in ("yes", "no"):
        return "yes/no"
    return "number" if most.isdecimal() else "other"


def combined(*sources: Iterable[Record]) -> list[Record]:
    """Merge the records of the same image from several readers. Fields with a single value come from the first source.

    Lists, such as captions, are concatenated in the order of the sources. Raises DataError for an image in two splits.
    """
    joined: dict[str, Record] = {}
    for record in (record for source in sources for record in source):
        old = joined.get(record.key)
        if old is not None and old.split != record.split:
            raise DataError(
                f"this image has the splits {old.split} and {record.split}, expected one split; correct the image's "
                "lines or rows, or leave out one of the files",
                key=record.key,
            )
        joined[record.key] = record if old is None else old.joined(record)
    return list(joined.values())
