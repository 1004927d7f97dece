"""Regions as read from a feature file, before shapes and values are checked, and helper functions of the readers."""

import binascii
import importlib
import io
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from diptych.runtime import unpickle
from diptych.runtime.errors import DataError, explained
from diptych.runtime.extras import requires_extra

Array = npt.NDArray[Any]
V = TypeVar("V")
T = TypeVar("T")
NAMED = 3  # maximum number of damaged entries in a message
LOOKED_AT = 20  # number of first entries from which the format is recognised
MOST_BYTES = 256 * 2**20  # maximum number of bytes of an array
# Version of an npy file -> number of bytes that hold the header's length, and the function that reads the header.
HEADERS: Mapping[tuple[int, int], tuple[int, Callable[[io.BytesIO], Any]]] = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}
LONGEST_HEADER = 10_000  # an npy header of more bytes is refused, as in numpy


@dataclass(frozen=True)
class Raw:
    """The region arrays of one image, not checked yet."""

    where: str  # the file, and the image's name in it, for error messages
    features: Array  # (R, F)
    boxes: Array | None = None  # (R, 4) x1 y1 x2 y2; None: the format has no boxes
    size: tuple[Any, Any] | None = None  # width and height in pixels; None: the format has no size
    fractions: bool = False  # True: boxes are fractions of the image; False: in pixels
    classes: Array | None = None  # (R, C) probabilities
    scores: Array | None = None  # (R,) 0 to 1
    best_first: bool = True  # False: the rows must still be sorted by score
    named: str = "features"  # name of the array of features in the file, for errors
    one_side: bool = False  # True: the file may give one side as both width and height, like MMF's extraction script


@runtime_checkable
class Unit(Protocol):
    """A group of files with the regions of many images, such as a tsv, a folder of npz files or an LMDB."""

    @property
    def path(self) -> Path: ...

    def names(self) -> Iterable[str]:
        """Return the image names in the unit. An image with two sets of regions occurs twice."""

    def read(self, name: str) -> Raw:
        """Return the regions of the image `name`. Raises DataError if they cannot be read."""


@dataclass(frozen=True)
class Folder:
    """A folder with one file per image. `reader` reads a file."""

    path: Path
    files: Mapping[str, Path]  # image name -> file
    reader: Callable[[Path], Raw]

    def names(self) -> Iterable[str]:
        return self.files

    def read(self, name: str) -> Raw:
        path = self.files[name]
        with explained(DataError, f"{path}: cannot be read", "copy it again"):
            return self.reader(path)


@dataclass(frozen=True)
class Listing:
    """All files below a path."""

    root: Path
    files: Mapping[str, tuple[Path, ...]]  # ending, such as `.npz` -> its files, sorted by name

    def ending(self, *endings: str) -> list[Path]:
        return [path for ending in endings for path in self.files.get(ending, ())]

    def named(self, ending: str) -> dict[str, Path]:
        """Return the files with `ending`. Their keys are paths below the root, without the ending."""
        return {path.relative_to(self.root).as_posix().removesuffix(ending): path for path in self.ending(ending)}


def numbered(named: Iterable[tuple[str, V]]) -> dict[str, V]:
    """Return the values as a dict.

    If a name occurs again, its second value has the key `again(name, 1)`, and so on.
    """
    values: dict[str, V] = {}
    times: dict[str, int] = {}
    for name, value in named:
        times[name] = times.get(name, -1) + 1
        values[again(name, times[name])] = value
    return values


def again(name: str, times: int) -> str:
    """Return the key of a name that has occurred `times` times before.

    It contains a zero byte, so it differs from all file names.
    """
    return f"{name}\0{times}" if times else name


def each_whole(items: Iterable[V], take: Callable[[V], T], problems: list[str]) -> list[T]:
    """Return `take(item)` for each item. Messages of errors are added to `problems`.

    Raises the first error if all items fail.
    """
    taken, errors = list[T](), list[DataError]()
    for item in items:
        try:
            taken.append(take(item))
        except DataError as error:
            errors.append(error)
    if errors and not taken:
        raise errors[0]
    problems += [f"left out: {error}" for error in errors[:NAMED]]
    problems += [f"left out: {len(errors) - NAMED} more"] if len(errors) > NAMED else []
    return taken


def read_as_data(where: str) -> AbstractContextManager[None]:
    """Convert any exception of a reader to a DataError, so that other files can still be read."""
    return explained(DataError, f"{where}: the features cannot be read", "download the file again", Exception)


def refuse(where: str, actual: str, wanted: str, remedy: str = "write the file again") -> NoReturn:
    """Raise a DataError that states the location, what was found, what was expected, and the remedy."""
    raise DataError(f"{where}: found {actual}, expected {wanted}; {remedy}")


def needed(module: str, what: str) -> Any:
    """Import and return the module `module`. If it is missing, raise RecipeError with the install command.

    `what`: the file or format that needs the module.
    """
    with requires_extra(what, "features"):
        return importlib.import_module(module)


def of_base64(text: str | memoryview, kind: str, rows: int, where: str, name: str) -> Array:
    """Decode a base64 field to an array of shape (rows, N). `kind`: the type of its numbers, such as `<f4`."""
    decode = needed("pybase64", f"{where}, whose `{name}` is base64,").b64decode_as_bytearray
    try:
        numbers = np.frombuffer(decode(text, validate=True), kind)
    except (binascii.Error, ValueError) as error:
        refuse(where, f"`{name}` that is not base64 of numbers ({error})", "complete base64", "download the file again")
    if rows < 1 or numbers.size % rows:
        refuse(where, f"{numbers.size} numbers in `{name}`", f"a multiple of {rows} regions", "download the file again")
    return numbers.reshape(rows, -1)


def read_npy(content: bytes, where: str, name: str, objects: bool = False) -> Any:
    """Return the array of an npy file. `objects`: allow a pickle of plain values, read without running code.

    Raises DataError.
    """
    # numpy parses the header as Python code, which raises many types of errors
    with explained(DataError, f"{where}: found no readable npy in `{name}`", "write the file again", Exception):
        version = np.lib.format.read_magic(io.BytesIO(content[: np.lib.format.MAGIC_LEN]))
        if version not in HEADERS:
            refuse(where, f"`{name}` in version {version} of the npy format", "1 or 2")
        begin = np.lib.format.MAGIC_LEN
        data = begin + HEADERS[version][0]
        length = int.from_bytes(content[begin:data], "little")
        shape, by_column, kind = _header(version, content[begin : data + min(length, LONGEST_HEADER)])
        data += length
    if kind.hasobject and objects:
        return unpickle.loads(content[data:], where)
    if kind.kind not in "fiub":
        pickled = ", which is a pickle that could run code" if kind.hasobject else ""
        refuse(where, f"`{name}` of type {kind}{pickled}", "numbers")
    there, claimed = len(content) - data, math.prod(shape) * kind.itemsize
    if claimed > there or min(shape, default=0) < 0:
        refuse(where, f"{there} of the {claimed} bytes of `{name}` {shape}", "all bytes", "download the file again")
    if not claimed:
        return np.empty(shape, kind)
    return np.frombuffer(content, kind, math.prod(shape), data).reshape(shape, order="F" if by_column else "C")


@lru_cache(maxsize=1024)
def _header(version: tuple[int, int], header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, Fortran order and type from an npy header.

    Results are cached, because parsing is slow and headers repeat.
    """
    return cast(tuple[tuple[int, ...], bool, np.dtype[Any]], HEADERS[version][1](io.BytesIO(header)))


def check_size(size: int, where: str, name: str) -> None:
    """Raise DataError if an array has more than MOST_BYTES bytes."""
    if size > MOST_BYTES:
        refuse(where, f"{size} bytes of `{name}`", f"at most {MOST_BYTES}")
