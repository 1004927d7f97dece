"""Read pickles of other programs without running code.

Only numpy arrays, numbers, texts and plain containers are built.

A pickle is a program that may call any function of any module. Here, only the few functions in _ALLOWED may be named;
other names are refused before anything is called. State is set only for arrays and their types. It is checked first,
because numpy's own `__setstate__` does not check it. Python's pure-Python unpickler is used. The C version has a table
of objects that a single number in the pickle can enlarge until memory runs out.
"""

import io
import math
import pickle
import re
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import bytes_of

# Matches the numpy dtypes of numbers, strings and objects, but not of structured arrays or times.
SIMPLE = re.compile(r"[<>|=]?[?bBiufcSUO]\d{0,6}", re.ASCII)
PLAIN = (type(None), bool, int, float, str, bytes, bytearray, np.generic)
Array = npt.NDArray[Any]


class PickleRefused(Exception):
    """Raised for an instruction in a pickle that is refused. `loads` adds the file's name to the message."""


def load(path: Path) -> Any:
    """Return the value of a pickle file. Raises DataError like `loads`."""
    with explained(DataError, f"{path}: cannot be read", "check the path and its permissions"):
        content = bytes_of(path)
    return loads(content, str(path))


def loads(content: bytes | memoryview, where: str) -> Any:
    """Return the value of a pickle.

    It consists of dict, list, tuple, set, numpy arrays and scalars, numbers, str, bytes, None.

    `str` of Python 2 is read as latin-1. Raises DataError for other values and for damage. `where`: begins the message.
    """
    try:
        value = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        _check(value, set())
        return value
    except PickleRefused as refused:
        raise DataError(
            f"{where}: found a pickle that {refused}, expected only numpy arrays, numbers, texts and plain containers; "
            "no code of it was run: get the file from a source that you trust, or save its arrays as npz"
        ) from None
    except MemoryError:
        raise DataError(
            f"{where}: the pickle asks for more memory than the machine has, so it may be damaged; download it again"
        ) from None
    except Exception as error:  # a damaged pickle can raise any exception
        raise DataError(
            f"{where}: found no pickle that can be read ({type(error).__name__}: {str(error)[:80]}); it "
            "may be cut short: download the file again"
        ) from None


class _Dtype:
    """A numpy type while it is built. A pickle calls `dtype("f4", 0, 1)`, then sets a state with the byte order."""

    __slots__ = ("dtype",)

    def __init__(self, spec: object, *_: object) -> None:
        text = spec.decode("latin1") if isinstance(spec, bytes) else str(spec)
        if not SIMPLE.fullmatch(text) or not np.dtype(text).itemsize:
            raise PickleRefused(f"needs the numpy type {text[:40]!r}")
        self.dtype = np.dtype(text)

    def set_order(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise PickleRefused("needs a structured numpy dtype")
        order: Any = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise PickleRefused(f"needs a numpy type of the byte order {str(order)[:40]!r}")
        self.dtype = self.dtype.newbyteorder(order)


def _filled(array: Any, raw: object, dtype: object, shape: object, fortran: bool) -> Array:
    """Fill an empty array with the numbers in `raw`, in place, because the pickle may refer to the array elsewhere.

    The byte order becomes the machine's.
    """
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple) or array.size:
        raise PickleRefused("has an array without type or shape, or fills an array twice")
    if not all(isinstance(side, int) and side >= 0 for side in shape) or len(shape) > 32:
        raise PickleRefused(f"has an array of the shape {str(shape)[:40]}")
    native = dtype.dtype.newbyteorder("=")
    content: Any = raw.encode("latin1") if isinstance(raw, str) else raw
    if not isinstance(content, list if native.hasobject else bytes | bytearray):
        raise PickleRefused("makes an array from something other than bytes or a list of objects")
    if math.prod(shape) * (1 if native.hasobject else native.itemsize) != len(content):
        raise PickleRefused(f"has {len(content)} bytes for an array of shape {shape} and type {native}")
    if native != dtype.dtype:
        content = np.frombuffer(bytes(content), dtype.dtype).astype(native).tobytes()
    array.__setstate__((1, shape, native, fortran, content if native.hasobject else bytes(content)))
    filled: Array = array
    return filled


def _empty() -> Array:
    return np.empty(0, np.uint8)


def _ndarray(*_: object) -> NoReturn:
    raise PickleRefused("creates an array without its data")


def _reconstruct(kind: object, *_: object) -> Array:
    if kind is not _ndarray:
        raise PickleRefused("contains an array whose class is not numpy's")
    return _empty()


def _from_buffer(raw: object, dtype: object, shape: object, order: object = "C") -> Array:
    return _filled(_empty(), raw, dtype, shape, order == "F")


def _scalar(dtype: object, raw: object) -> object:
    return _filled(_empty(), raw, dtype, (), False)[()]


def _encoded(text: str, encoding: object = "latin1") -> bytes:
    """Return the bytes that a text represents. In pickles for Python 2, Python 3 writes bytes as a latin-1 text."""
    if encoding != "latin1":
        raise PickleRefused(f"has bytes in the encoding {str(encoding)[:40]!r}, not latin1")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encoded,
    ("collections", "OrderedDict"): dict,
    **{(module, "set"): set for module in ("builtins", "__builtin__")},
    # In pickles for Python 2, Python 3 writes b"" as a call of `bytes`. A call with a number could fill the memory.
    **{(module, "bytes"): lambda: b"" for module in ("builtins", "__builtin__")},
}
for _core in ("numpy.core", "numpy._core"):  # the names of one module in numpy 1 and numpy 2
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = _reconstruct
    _ALLOWED[f"{_core}.multiarray", "scalar"] = _scalar
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _from_buffer


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise PickleRefused(f"calls {module[:60]}.{name[:60]}")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise PickleRefused("refers to an object outside of the pickle")

    def get_extension(self, code: int) -> None:
        raise PickleRefused(f"uses the extension code {code}, which only the program that wrote it knows")

    def load_build(self: Any) -> None:
        state, built = self.stack.pop(), self.stack[-1]
        if isinstance(built, _Dtype):
            built.set_order(state)
        elif not isinstance(built, np.ndarray):
            raise PickleRefused("sets the state of an object that is not an array")
        elif not isinstance(state, tuple) or len(state) not in (4, 5):
            raise PickleRefused("has an array in an unknown version of numpy's format")
        else:
            shape, dtype, fortran, raw = state[-4:]
            _filled(built, raw, dtype, shape, bool(fortran))

    def load_bytearray8(self: Any) -> None:
        """Read a bytearray, up to the end of the pickle. Allocating the size that it states could take all memory."""
        self.append(bytearray(self.read(int.from_bytes(self.read(8), "little"))))

    dispatch |= {pickle.BUILD[0]: load_build, pickle.BYTEARRAY8[0]: load_bytearray8}


def _check(value: object, seen: set[int]) -> None:
    """Raise PickleRefused if a value contains a function or a type. `seen`: ids of values already checked."""
    if isinstance(value, PLAIN) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        inner: Any = value.ravel().tolist() if value.dtype.hasobject else ()
    elif isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    else:
        raise PickleRefused("holds a function or a type")
    for one in inner:
        _check(one, seen)
