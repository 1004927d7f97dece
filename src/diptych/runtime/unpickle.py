"""Foreign pickles without running them: numpy arrays, numbers, texts and plain containers come out, and nothing else.

A pickle is a program that may name any function of any module. Here every name stands for one of the few builders
below, or is refused before anything is called; arrays and their dtypes are built from the parts that the pickle spells
out, never by numpy's own `__setstate__`, which trusts them. The interpreter of pickles is the one in Python: that in
C has a table of remembered objects that one number can make take all memory.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of

SIMPLE = "?bBiufcSUO"  # kinds of numbers, texts and objects; no records, no times
Array = npt.NDArray[Any]


class Refused(Exception):
    """What the pickle wants; `loads` says where."""


def load(path: Path) -> Any:
    """What the pickle holds; see `loads`."""
    try:
        content = bytes_of(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None
    return loads(content, str(path))


def loads(content: bytes | memoryview, where: str) -> Any:
    """dict, list, tuple, set, numpy arrays and scalars, numbers, str, bytes, None; `str` of Python 2 as latin-1.

    Raises DataError, which begins with `where`, for a pickle that asks for anything else, is cut short or is none.
    """
    try:
        return _finished(_Unpickler(io.BytesIO(content), encoding="latin1").load(), {})
    except Refused as refused:
        raise DataError(
            f"{where}: found a pickle that {refused}, wanted numpy arrays, numbers, texts and plain containers, and "
            "nothing else; nothing of it was run: get the file from a source that you trust, or save its arrays as npz"
        ) from None
    except MemoryError:
        raise DataError(f"{where}: found a pickle that wants more memory than there is; get the file again") from None
    except Exception as error:  # a damaged pickle can raise whatever its opcodes can
        raise DataError(
            f"{where}: found no pickle that can be read ({type(error).__name__}: {str(error)[:80]}), wanted one; it "
            "may be cut short: get the file again"
        ) from None


class _Dtype:
    """A dtype as the pickle spells it: `dtype("f4", 0, 1)`, then the byte order."""

    __slots__ = ("found",)

    def __init__(self, *parts: object) -> None:
        spec = parts[0] if parts else None
        if isinstance(spec, bytes):
            spec = spec.decode("latin1")
        if not isinstance(spec, str) or spec.lstrip("<>|=")[:1] not in tuple(SIMPLE) or not _is_plain(spec):
            raise Refused(f"wants the numpy type {str(spec)[:40]!r}")
        self.found = np.dtype(spec)

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise Refused("wants a numpy type made of others")
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "|", "="):
            raise Refused(f"wants a numpy type of the byte order {str(order)[:40]!r}")
        if order in ("<", ">"):
            self.found = np.dtype(order + self.found.str[1:])


def _is_plain(spec: str) -> bool:
    size = spec.lstrip("<>|=")[1:]
    return not size or (size.isascii() and size.isdigit() and len(size) < 7)


class _Array:
    """An array that is still without its numbers; `__setstate__` brings them."""

    __slots__ = ("found",)

    def __init__(self, found: Array | None = None) -> None:
        self.found = found

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise Refused("wants an array of an unknown version")
        shape, dtype, fortran, raw = state[-4:]
        self.found = _array(raw, dtype, shape, "F" if fortran else "C")


def _array(raw: object, dtype: object, shape: object, order: object) -> Array:
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
        raise Refused("wants an array without a type or a shape")
    if not all(isinstance(side, int) and side >= 0 for side in shape) or len(shape) > 32:
        raise Refused(f"wants an array of the shape {str(shape)[:40]}")
    if dtype.found.hasobject:
        if not isinstance(raw, list) or len(raw) != math.prod(shape):
            raise Refused("wants an array of objects from something else than their list")
        objects = np.empty(len(raw), object)
        for place, one in enumerate(raw):
            objects[place] = one
        return objects.reshape(shape, order="F" if order == "F" else "C")
    content = raw.encode("latin1") if isinstance(raw, str) else raw
    if not isinstance(content, bytes | bytearray):
        raise Refused("wants an array from something else than bytes")
    if math.prod(shape) * dtype.found.itemsize != len(content):
        raise Refused(f"wants an array {shape} of {dtype.found} from {len(content)} bytes")
    if not content:
        return np.empty(shape, dtype.found)
    # A copy, so that it may be written to, and in the machine's byte order.
    array = np.frombuffer(content, dtype.found).astype(dtype.found.newbyteorder("="))
    return array.reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(kind: object, *_: object) -> _Array:
    if kind is not _ALLOWED["numpy", "ndarray"]:
        raise Refused("wants an array of a class of its own")
    return _Array()


def _from_buffer(raw: object, dtype: object, shape: object, order: object = "C") -> _Array:
    return _Array(_array(raw, dtype, shape, order))


def _scalar(dtype: object, raw: object) -> object:
    if isinstance(dtype, _Dtype) and dtype.found.hasobject:
        raise Refused("wants a numpy number that is an object")
    return _array(raw, dtype, (), "C")[()]


def _encoded(text: object, encoding: object = "latin1") -> bytes:
    """`bytes` as Python 3 writes them for Python 2."""
    if not isinstance(text, str) or encoding != "latin1":
        raise Refused(f"wants the encoding {str(encoding)[:40]!r}")
    return text.encode("latin1")


def _ordered(items: object = ()) -> dict[Any, Any]:
    if not isinstance(items, list | tuple):
        raise Refused("wants a dictionary from something else than a list of pairs")
    return {key: value for key, value in items}  # noqa: C416  each pair is unpacked, or refused


def _set(items: object = ()) -> set[Any]:
    if not isinstance(items, list | tuple):
        raise Refused("wants a set from something else than a list")
    return set(items)


def _no_bytes(*parts: object) -> bytes:
    if parts:
        raise Refused("wants bytes from something else than bytes")
    return b""


def _bare(*_: object) -> NoReturn:
    raise Refused("wants an array that is not filled")


class _Builder:
    """One allowed name. It can be called, and neither changed nor looked into by a pickle."""

    __slots__ = ("_build",)

    def __init__(self, build: Callable[..., object]) -> None:
        object.__setattr__(self, "_build", build)

    def __call__(self, *parts: object) -> object:
        build: Callable[..., object] = object.__getattribute__(self, "_build")
        return build(*parts)

    def __setattr__(self, name: str, value: object) -> None:
        raise Refused(f"changes {name[:40]!r} of a function")

    def __setstate__(self, state: object) -> None:
        raise Refused("changes a function")


_ALLOWED = {
    ("numpy", "ndarray"): _Builder(_bare),
    ("numpy", "dtype"): _Builder(_Dtype),
    ("_codecs", "encode"): _Builder(_encoded),
    ("collections", "OrderedDict"): _Builder(_ordered),
} | {
    (f"numpy.{core}.{module}", name): _Builder(build)
    for core in ("core", "_core")  # as numpy 1 and as numpy 2 write it
    for module, name, build in (
        ("multiarray", "_reconstruct", _reconstruct),
        ("multiarray", "scalar", _scalar),
        ("numeric", "_frombuffer", _from_buffer),
    )
} | {
    (module, name): _Builder(build)
    for module in ("builtins", "__builtin__")
    for name, build in (("set", _set), ("bytes", _no_bytes))  # no bytes: as Python 3 writes b"" for Python 2
}  # fmt: skip


class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise Refused(f"calls {module[:60]}.{name[:60]}")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise Refused("refers to something outside of it")

    def get_extension(self, code: int) -> None:
        raise Refused(f"uses the extension {code} of a program")


def _finished(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """The same with arrays in place of what stood for them; what is there once stays once.

    `done` keeps what was replaced as well, or another object could come to have its id.
    """
    if isinstance(value, _Builder | _Dtype) or (isinstance(value, _Array) and value.found is None):
        raise Refused("holds a function, a type or an array that is not filled")
    made: Any = value.found if isinstance(value, _Array) else value
    objects = isinstance(made, np.ndarray) and made.dtype.hasobject
    if not objects and not isinstance(made, dict | list | tuple | set):
        return made
    if id(value) in done:
        return done[id(value)][1]
    if isinstance(made, tuple):  # which can hold itself through one of the others alone
        made = tuple(_finished(one, done) for one in made)
        done[id(value)] = value, made
        return made
    done[id(value)] = value, made
    if isinstance(made, dict):
        pairs = [(_finished(key, done), _finished(one, done)) for key, one in made.items()]
        made.clear()
        made.update(pairs)
    elif isinstance(made, list):
        made[:] = [_finished(one, done) for one in made]
    elif isinstance(made, set):
        found = {_finished(one, done) for one in made}
        made.clear()
        made.update(found)
    else:
        for place in np.ndindex(made.shape):
            made[place] = _finished(made[place], done)
    return made
