"""Regions as a file has them: arrays whose shapes and values nobody has checked yet."""

import binascii
import importlib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from diptych.runtime import unpickle
from diptych.runtime.errors import DataError, DiptychError
from diptych.runtime.extras import requires_extra

Array = npt.NDArray[Any]
MOST_BYTES = 256 * 2**20  # of one array
# By the version of an npy: how many bytes say how long its header is, and what reads it.
HEADERS: Mapping[tuple[int, int], tuple[int, Callable[[io.BytesIO], Any]]] = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}
LONGEST_HEADER = 10_000  # bytes, numpy's own limit


@dataclass(frozen=True)
class Raw:
    """Of one picture."""

    where: str  # the file, and the name inside it, for messages
    features: Array  # (R, F)
    boxes: Array | None = None  # (R, 4) x1 y1 x2 y2; None where the format has none
    size: tuple[Any, Any] | None = None  # width and height in pixels; None where the format has none
    fractions: bool = False  # boxes are fractions of the picture rather than pixels
    classes: Array | None = None  # (R, C) probabilities
    scores: Array | None = None  # (R,) 0 to 1
    best_first: bool = True  # in the order in which models of the format read them; else they are put so by score
    named: str = "features"  # what the file calls its features


@runtime_checkable
class Unit(Protocol):
    """One piece of a release that holds regions of many pictures: a tsv, a folder of npz, an LMDB."""

    @property
    def path(self) -> Path: ...

    def names(self) -> Iterable[str]:
        """Of the pictures, as the file has them, one for each set of regions."""

    def read(self, name: str) -> Raw: ...


@dataclass(frozen=True)
class Folder:
    """A file a picture, each read by `reader`."""

    path: Path
    files: Mapping[str, Path]  # by the name of the picture
    reader: Callable[[Path], Raw]

    def names(self) -> Iterable[str]:
        return self.files

    def read(self, name: str) -> Raw:
        path = self.files[name]
        try:
            return self.reader(path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); copy it again") from None


@dataclass(frozen=True)
class Listing:
    """What lies below a path."""

    root: Path
    files: Mapping[str, tuple[Path, ...]]  # by ending, such as `.npz`, in the order of their names

    def ending(self, *endings: str) -> list[Path]:
        return [path for ending in endings for path in self.files.get(ending, ())]

    def named(self, ending: str) -> dict[str, Path]:
        """The files of an ending by their paths below the root, without it."""
        return {path.relative_to(self.root).as_posix().removesuffix(ending): path for path in self.ending(ending)}


@dataclass(frozen=True)
class FeatureFormat:
    name: str
    units: Callable[[Listing], list[Unit]]  # what of it lies there


@contextmanager
def read_as_data(where: str) -> Iterator[None]:
    """Whatever a reader raises on a foreign file becomes a DataError, so that one odd file does not stop the others."""
    try:
        yield
    except DiptychError:
        raise
    except Exception as error:
        raise DataError(
            f"{where}: found nothing that can be read ({type(error).__name__}: {error}), wanted features; get the file "
            "again"
        ) from error


def refuse(where: str, found: str, wanted: str, way_out: str = "write the file anew") -> NoReturn:
    raise DataError(f"{where}: found {found}, wanted {wanted}; {way_out}")


def needed(module: str, what: str) -> Any:
    """A library that only readers of such files want."""
    with requires_extra(what, "features"):
        return importlib.import_module(module)


def of_base64(text: str | memoryview, kind: str, rows: int, where: str, name: str) -> Array:
    """(rows, ...) numbers of a field of base64; one number a row makes a vector."""
    decode = needed("pybase64", f"{where}, whose `{name}` is base64,").b64decode_as_bytearray
    try:
        numbers = np.frombuffer(decode(text, validate=True), kind)
    except (binascii.Error, ValueError) as error:
        refuse(where, f"`{name}` that is no base64 of numbers ({error})", "it whole", "it may be cut: get it again")
    if rows < 1 or numbers.size % rows:
        refuse(where, f"{numbers.size} numbers in `{name}` for {rows} regions", "as many for each", "get it again")
    return numbers.reshape(rows, -1)


def read_npy(content: bytes, where: str, name: str, objects: bool = False) -> Any:
    """The array of an npy. `objects` may be in it, as plain values."""
    try:
        version = np.lib.format.read_magic(io.BytesIO(content[: np.lib.format.MAGIC_LEN]))
        if version not in HEADERS:
            refuse(where, f"`{name}` in version {version} of the format", "1 or 2")
        begin = np.lib.format.MAGIC_LEN
        data = begin + HEADERS[version][0]
        length = int.from_bytes(content[begin:data], "little")
        shape, by_column, kind = _header(version, content[begin : data + min(length, LONGEST_HEADER)])
        data += length
    except DataError:
        raise
    except Exception as error:  # numpy parses the header as Python, which can fail in many ways
        refuse(where, f"no npy that can be read in `{name}` ({error})", "one")
    if kind.hasobject and objects:
        return unpickle.loads(content[data:], where)
    if kind.kind not in "fiub":
        pickled = ", which would have to be unpickled" if kind.hasobject else ""
        refuse(where, f"`{name}` of type {kind}{pickled}", "numbers")
    there, claimed = len(content) - data, math.prod(shape) * kind.itemsize
    if claimed > there or min(shape, default=0) < 0:
        refuse(where, f"`{name}` {shape}, {claimed} bytes, and {there} of them", "it whole", "get the file again")
    if not claimed:
        return np.empty(shape, kind)
    return np.frombuffer(content, kind, math.prod(shape), data).reshape(shape, order="F" if by_column else "C")


@lru_cache(maxsize=1024)
def _header(version: tuple[int, int], header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type. Those of a set are few, and numpy takes longer over them than over the numbers."""
    read: tuple[tuple[int, ...], bool, np.dtype[Any]] = HEADERS[version][1](io.BytesIO(header))
    return read


def not_too_large(size: int, where: str, name: str) -> None:
    if size > MOST_BYTES:
        refuse(where, f"{size} bytes of `{name}`", f"at most {MOST_BYTES}")
