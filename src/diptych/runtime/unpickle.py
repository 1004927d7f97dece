"""Read foreign pickles without running them: only numpy arrays, numbers, texts and plain containers are built.

A pickle is a program that may name any function of any module. Here every name must be one of the few builders below,
or it is refused before anything is called. State is set only for arrays and their types, and checked before, since
numpy's own `__setstate__` trusts it. The interpreter is the one in Python: the one in C has a table of objects, which a
single number can make so large that it takes all memory.
"""

import io
import math
import pickle
import re
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of

SIMPLE = re.compile(r"[<>|=]?[?bBiufcSUO]\d{0,6}", re.ASCII)  # types of numbers, texts, objects; no records, no times
PLAIN = (type(None), bool, int, float, str, bytes, bytearray, np.generic)
Array = npt.NDArray[Any]


class PickleRefused(Exception):
    """A pickle has a refused instruction; `loads` adds where."""


def load(path: Path) -> Any:
    """The value of a pickle file. Raises DataError like `loads`."""
    try:
        content = bytes_of(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None
    return loads(content, str(path))


def loads(content: bytes | memoryview, where: str) -> Any:
    """The value of a pickle: dict, list, tuple, set, numpy arrays and scalars, numbers, str, bytes, None.

    `str` of Python 2 is read as latin-1. Raises DataError, which begins with `where`, for other values and for damage.
    """
    try:
        value = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        _check(value, set())
        return value
    except PickleRefused as refused:
        raise DataError(
            f"{where}: found a pickle that {refused}, expected only numpy arrays, numbers, texts and plain containers; "
            "nothing of it was run: get the file from a source that you trust, or save its arrays as npz"
        ) from None
    except MemoryError:
        raise DataError(
            f"{where}: found a pickle that needs more memory than the machine has; download the file again"
        ) from None
    except Exception as error:  # the opcodes of a damaged pickle can raise any error
        raise DataError(
            f"{where}: found no pickle that can be read ({type(error).__name__}: {str(error)[:80]}), expected one; it "
            "may be cut short: download the file again"
        ) from None


class _Dtype:
    """A numpy type as a pickle builds it: `dtype("f4", 0, 1)`, then its state with the byte order."""

    __slots__ = ("dtype",)

    def __init__(self, spec: object, *_: object) -> None:
        text = spec.decode("latin1") if isinstance(spec, bytes) else str(spec)
        if not SIMPLE.fullmatch(text) or not np.dtype(text).itemsize:
            raise PickleRefused(f"needs the numpy type {text[:40]!r}")
        self.dtype = np.dtype(text)

    def set_order(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise PickleRefused("needs a compound numpy type")
        order: Any = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise PickleRefused(f"needs a numpy type of the byte order {str(order)[:40]!r}")
        self.dtype = self.dtype.newbyteorder(order)


def _filled(array: Any, raw: object, dtype: object, shape: object, fortran: bool) -> Array:
    """Fill an empty array with numbers in the machine's byte order: in place, since the pickle may refer to it."""
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple) or array.size:
        raise PickleRefused("has an array without a type or a shape, or fills one twice")
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
    raise PickleRefused("has an array that is not filled")


def _reconstruct(kind: object, *_: object) -> Array:
    if kind is not _ndarray:
        raise PickleRefused("has an array of a class that numpy does not have")
    return _empty()


def _from_buffer(raw: object, dtype: object, shape: object, order: object = "C") -> Array:
    return _filled(_empty(), raw, dtype, shape, order == "F")


def _scalar(dtype: object, raw: object) -> object:
    return _filled(_empty(), raw, dtype, (), False)[()]


def _encoded(text: str, encoding: object = "latin1") -> bytes:
    """Return the bytes that Python 3 pickles as this text for Python 2."""
    if encoding != "latin1":
        raise PickleRefused(f"needs the encoding {str(encoding)[:40]!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encoded,
    ("collections", "OrderedDict"): dict,
    **{(module, "set"): set for module in ("builtins", "__builtin__")},
    # Empty bytes as Python 3 writes them for Python 2; `bytes` itself could take all memory.
    **{(module, "bytes"): lambda: b"" for module in ("builtins", "__builtin__")},
}
for _core in ("numpy.core", "numpy._core"):  # as numpy 1 and as numpy 2 write it
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
        raise PickleRefused(f"uses the extension code {code}, which only its own program knows")

    def load_build(self: Any) -> None:
        state, built = self.stack.pop(), self.stack[-1]
        if isinstance(built, _Dtype):
            built.set_order(state)
        elif not isinstance(built, np.ndarray):
            raise PickleRefused("sets the state of an object that is not an array")
        elif not isinstance(state, tuple) or len(state) not in (4, 5):
            raise PickleRefused("has an array of an unknown version")
        else:
            shape, dtype, fortran, raw = state[-4:]
            _filled(built, raw, dtype, shape, bool(fortran))

    def load_bytearray8(self: Any) -> None:
        """Read the bytes that exist: allocating the stated number could take all memory."""
        self.append(bytearray(self.read(int.from_bytes(self.read(8), "little"))))

    dispatch |= {pickle.BUILD[0]: load_build, pickle.BYTEARRAY8[0]: load_bytearray8}


def _check(value: object, seen: set[int]) -> None:
    """Raise PickleRefused if a function or a type is left among the values. Each value is checked once."""
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
