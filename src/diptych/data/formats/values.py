"""Validate values of JSON files with msgspec.

An error becomes a DataError with the location and how to correct it. A reader declares a msgspec struct with the fields
that it needs, in the types below. `JsonValue.read` converts a value to that struct.
"""

from __future__ import annotations

import json
import re
import warnings
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from diptych.runtime.errors import DataError
from diptych.vision.image_files import BEYOND

FEW_PIXELS = 4  # in an image with longer sides, a box within 0 to 1 is taken for fractions
LONGEST = 1_000_000  # an image's side has at most this many pixels
_HUGE = 1e15
HALF = "half a surrogate pair, which is not Unicode"
LOOKED_AT = 20  # a format is recognised by the first entries, at most this many
CORRECT = "; correct it, or download the file again"

# Types for the fields of structs. Do not use `Text` or `Words` in a union with a list or dict: see vcr.py.
Words = Annotated[str, Meta(pattern=r"^[^\ud800-\udfff]*\Z")]  # a text, which may be empty
Text = Annotated[str, Meta(pattern=r"^\s*[^\s\ud800-\udfff][^\ud800-\udfff]*\Z")]
Side = Annotated[int, Meta(ge=1, le=LONGEST)]  # an image's width or height in pixels
Number = Annotated[float, Meta(gt=-_HUGE, lt=_HUGE)]
Corners: TypeAlias = tuple[Number, Number, Number, Number]
Four: TypeAlias = tuple[Text, Text, Text, Text]
Option = Annotated[int, Meta(ge=0, le=3)]  # index of one of VCR's four answers
Flag = bool | Literal["True", "False"]  # a boolean; NLVR2 writes "True" and "False" as texts

_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
# {name of a type in msgspec's errors: its name in Diptych's errors}.
_NAMES = {
    "object": "an object", "array": "a list", "str": "a text", "int": "a whole number", "float": "a finite number",
    "null": "null", "bool": "true or false", "bool | str": "true or false",
}  # fmt: skip
_RANGES = {
    "`int` >= 1": f"1 to {LONGEST} pixels", f"`int` <= {LONGEST}": f"1 to {LONGEST} pixels",
    "`int` >= 0": "0, 1, 2 or 3", "`int` <= 3": "0, 1, 2 or 3",
}  # fmt: skip
_HALF = re.compile("[\ud800-\udfff]")
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""  # a Python string literal
# A list of Python strings, with or without commas: numpy prints none.
_LIST = re.compile(rf"\[\s*(?:{_QUOTED}[\s,]*)+\]", re.S)
T = TypeVar("T")
Box: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True)
class Ambiguous:
    """A JSON object with a duplicate key. Readers skip it as invalid and read the rest of its list."""

    name: str

    @classmethod
    def unless_once(cls, pairs: list[tuple[str, Any]]) -> dict[str, Any] | Ambiguous:
        """Return the object as a dict, or `Ambiguous` if a key occurs twice.

        If the values of duplicate keys are objects themselves, only these values become `Ambiguous`.
        """
        values = dict(pairs)
        if len(values) == len(pairs):
            return values
        twice = {name for name, times in Counter(name for name, _ in pairs).items() if times > 1}
        if all(isinstance(value, dict) for name, value in pairs if name in twice):
            return values | {name: cls(name) for name in twice}
        return cls(next(name for name, _ in pairs if name in twice))

    def __str__(self) -> str:
        return f"the name `{self.name}` twice in one object"


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), str(value))


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value in a JSON file, with its place."""

    value: Any
    file: str  # the file's name; for JSON lines, with the line number
    place: str = ""  # place in the file, such as `annotations[3]`

    def where(self, place: str = "") -> str:
        """Return the file and the place in it, such as `a.json: annotations[3].caption`."""
        inside = f"{self.place}{'.' if self.place and place and place[0] != '[' else ''}{place}"
        return f"{self.file}: {inside}" if inside else self.file

    def inner(self, step: str | int) -> JsonValue:
        """Return the value at a key of this object, or at an index of this list."""
        place = f"[{step}]" if isinstance(step, int) else f".{step}" if self.place else step
        return JsonValue(self.value[step], self.file, f"{self.place}{place}")

    def items(self) -> list[JsonValue]:
        return [self.inner(number) for number in range(len(self.read(list)))]

    def lists(self, *names: str) -> list[JsonValue]:
        """Return the lists under these keys of the object.

        Raises DataError unless the value is an object that has all these lists.
        """
        self.read(msgspec.defstruct("Lists", [(name, list) for name in names]))
        return [self.inner(name) for name in names]

    def refuse(self, given: str, wanted: str, place: str = "") -> NoReturn:
        refuse(self.where(place), given, wanted)

    def read(self, kind: type[T]) -> T:
        """Convert the value to a struct, list or dict of type `kind`. Raises DataError with the place."""
        try:
            return msgspec.convert(self.value, kind)
        except UnicodeEncodeError:
            self.refuse(HALF, "words or numbers")
        except msgspec.ValidationError as error:
            what, _, path = str(error).partition(" - at `$")
            self._explain(kind, what, path.rstrip("`").lstrip("."))

    def _explain(self, kind: Any, what: str, place: str) -> NoReturn:
        """Raise a DataError for msgspec's error message `what`. It states what was found and what was expected."""
        value = self.value
        for step in re.findall(r"[^.\[\]]+", place.partition("[...]")[0]):
            value = value[int(step) if isinstance(value, list) else step]
        given, expected = _kind(value), what.removeprefix("Expected ").partition(", got ")[0]
        if missing := re.search("missing required field (.*)", what):
            names = ", ".join(f"`{key}`" for key in list(value)[:8]) or "nothing"
            self.refuse(f"an object with {names}", f"one with {missing[1]}", place)
        if expected.startswith("`array` of length "):
            length = expected.rpartition(" length ")[2].replace(">=", "at least").replace("<=", "at most")
            self.refuse(f"a list of {len(value)} items", f"{length} items", place)
        if expected in _RANGES:
            self.refuse(str(value)[:40], _RANGES[expected], place)
        if expected.startswith("`str` matching"):
            half = isinstance(value, str) and value.strip()
            self.refuse(HALF if half else "an empty text", "words", place)
        if not place and expected == "`object`" and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            self.refuse(given, f"an object with `{kind.__struct_encode_fields__[0]}`")
        name = "float" if "float" in expected or "out of range" in what else expected.partition("` ")[0].strip("`")
        name = "bool" if "enum" in what else name
        wanted = _NAMES.get(name) or " or ".join(_NAMES.get(one, one) for one in name.split(" | "))
        shown = f" ({str(value)[:40]})" if name in ("int", "float", "bool", "bool | str") else ""
        self.refuse(f"{given}{shown}", wanted, place)


def refuse(where: str, given: str, wanted: str) -> NoReturn:
    raise DataError(f"{where}: found {given}, expected {wanted}{CORRECT}")


def is_true(flag: Flag) -> bool:
    """Return a `Flag` as a bool."""
    return flag in (True, "True")


def box_of(corners: Corners, width: int, height: int, where: str, add: Callable[[str, str], None]) -> Box:
    """Like `corner_box`, for a box [left, top, width, height] in pixels."""
    left, top, across, down = corners
    return corner_box((left, top, left + across, top + down), width, height, where, add, corners)


def corner_box(
    corners: Sequence[float], width: int, height: int, where: str, add: Callable[[str, str], None],
    shown: Sequence[float] | None = None,
) -> Box:  # fmt: skip
    """Convert [x1, y1, x2, y2] in pixels to fractions of the image, clipped to it.

    A fifth number, a score, is ignored. If a box exceeds the image by more than BEYOND times the image's side, the
    box is counted with `add` (`Skips.add`). Raises DataError for a box that is completely outside the image, or
    seems to be in fractions.
    """
    x1, y1, x2, y2 = corners[:4]
    if max(corners[:4]) <= 1 + BEYOND < FEW_PIXELS < min(width, height):
        given = f"{_numbers(shown or corners)}, which looks like fractions"
        refuse(where, given, f"pixels of the {width} x {height} image")
    box = (max(0.0, x1 / width), max(0.0, y1 / height), min(1.0, x2 / width), min(1.0, y2 / height))
    if box[0] >= box[2] or box[1] >= box[3]:
        refuse(where, _numbers(shown or corners), f"one that overlaps the {width} x {height} pixels")
    if min(x1 / width, y1 / height) < -BEYOND or max(x2 / width, y2 / height) > 1 + BEYOND:
        form = "x1, y1, x2, y2" if shown is None else "left, top, width, height"
        add(f"boxes that extend far outside the image (clipped; expected {form} in pixels)", where)
    return box


def _numbers(box: Sequence[float]) -> str:
    return f"the box [{', '.join(f'{number:g}' for number in box)}]"


def text_of_id(given: Any) -> str | None:
    """Return an id, which may be a text or an integer, as a text; None for any other value."""
    if isinstance(given, str) and _HALF.search(given):
        return None
    if isinstance(given, bool) or (isinstance(given, float) and not given.is_integer()):
        return None
    return str(int(given) if isinstance(given, float) else given) if isinstance(given, int | float | str) else None


def listed_texts(cell: str) -> str | list[str]:
    """Return the texts in a table's cell if it holds a list as JSON, Python or numpy write it, else the cell."""
    text = cell.strip()
    if text.startswith("[") and text.endswith("]"):
        with suppress(ValueError, RecursionError):
            texts = json.loads(text)
            return texts if all(isinstance(one, str) for one in texts) else cell
        with suppress(ValueError, SyntaxError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape that Python does not know, such as \d, gives a warning
            return [literal_eval(one) for one in re.findall(_QUOTED, text, re.S)] if _LIST.fullmatch(text) else cell
    return cell
