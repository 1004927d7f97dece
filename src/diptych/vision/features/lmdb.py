"""LMDB folders (data.mdb): UNITER's feat_thT_maxM_minN, plain or compressed, and MMF's.

UNITER  values are msgpack of numpy arrays, or npz where compressed; the names are a JSON list, `__keys__`
MMF     values are pickles of a dictionary, read as plain values alone; the names are a pickled list, `keys`
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from diptych.runtime import unpickle
from diptych.runtime.errors import DataError
from diptych.runtime.files import parse_json
from diptych.vision.features.npy import of_info
from diptych.vision.features.npz import read_npz
from diptych.vision.features.raw import Array, FeatureFormat, Listing, Raw, Unit, needed, refuse

LISTS = (b"__keys__", b"keys")
ZIP, PICKLE = b"PK", b"\x80"
AGAIN = "get the folder again"


class _Held:
    """An open LMDB; a process may have each open once, so those who read it share it."""

    open: ClassVar[WeakValueDictionary[Path, _Held]] = WeakValueDictionary()

    def __init__(self, path: Path) -> None:
        lmdb = needed("lmdb", f"{path.name}, an LMDB,")
        try:  # without a lock: a folder that nobody may write to, or that another program holds, can be read
            self.environment = lmdb.open(str(path), readonly=True, lock=False, readahead=False, max_readers=1)
        except (lmdb.Error, OSError) as error:
            raise DataError(f"{path}: found no LMDB that can be read ({error}), wanted one; {AGAIN}") from None
        # The file is mapped: to read a page beyond its end would end the process.
        wanted = (self.environment.info()["last_pgno"] + 1) * self.environment.stat()["psize"]
        there = (path / "data.mdb").stat().st_size
        if there < wanted:
            refuse(str(path), f"an LMDB of {there} bytes", f"{wanted}, as it says of itself; it is cut short", AGAIN)

    @classmethod
    def of(cls, path: Path) -> _Held:
        path = path.resolve()
        return cls.open.get(path) or cls.open.setdefault(path, cls(path))

    def __del__(self) -> None:
        if (environment := getattr(self, "environment", None)) is not None:
            environment.close()


@dataclass(frozen=True)
class Database:
    path: Path  # the folder of data.mdb

    @cached_property
    def _held(self) -> _Held:
        return _Held.of(self.path)

    def _value(self, key: bytes) -> bytes | None:
        lmdb = needed("lmdb", "an LMDB")
        try:
            with self._held.environment.begin() as held:
                value = held.get(key)
        except lmdb.Error as error:
            raise DataError(f"{self.path}: {key[:60]!r} cannot be read ({error}); {AGAIN}") from None
        return None if value is None else bytes(value)

    def names(self) -> Iterable[str]:
        for key in LISTS:
            value = self._value(key)
            if value is not None:
                return self._listed(value, key.decode())
        with self._held.environment.begin() as held:
            found = [bytes(key).decode("utf-8", "replace") for key in held.cursor().iternext(values=False)]
        if not found:
            raise DataError(f"{self.path}: found an empty LMDB, wanted one with regions; {AGAIN}")
        return found

    def _listed(self, value: bytes, name: str) -> list[str]:
        where = f"{self.path}, {name}"
        try:
            found = unpickle.loads(value, where) if value[:1] == PICKLE else parse_json(value)
        except ValueError as error:
            refuse(where, f"no JSON ({error})", "a list of names", AGAIN)
        if not isinstance(found, list) or not all(isinstance(one, str | bytes) for one in found):
            refuse(where, f"{type(found).__name__}", "a list of names", AGAIN)
        if not found:
            refuse(where, "an empty list", "names of pictures", AGAIN)
        return [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in found]

    def read(self, name: str) -> Raw:
        where, value = f"{self.path}, {name}", self._value(name.encode())
        if value is None:
            refuse(where, "nothing there", "regions, as its list of names has it", AGAIN)
        if value.startswith(ZIP):
            return read_npz(io.BytesIO(value), where)
        if value.startswith(PICKLE):
            return of_info(unpickle.loads(value, where), None, where)
        return _of_msgpack(value, where)


def units(listing: Listing) -> list[Unit]:
    return [Database(path.parent) for path in listing.ending(".mdb") if path.name == "data.mdb"]


FORMAT = FeatureFormat("LMDB", units)


def _of_msgpack(value: bytes, where: str) -> Raw:
    """As msgpack-numpy writes arrays: {nd, type, kind, shape, data}."""
    msgpack = needed("msgpack", "UNITER's LMDB")
    try:
        found = msgpack.unpackb(value, raw=True, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        refuse(where, f"no msgpack ({error})", "it", AGAIN)
    if not isinstance(found, dict) or b"norm_bb" not in found or b"features" not in found:
        refuse(where, f"{type(found).__name__} without norm_bb and features", "UNITER's dictionary of arrays", AGAIN)
    features, boxes, scores, classes = (
        _array(found[name], where, name.decode()) if name in found else None
        for name in (b"features", b"norm_bb", b"conf", b"soft_labels")
    )
    assert features is not None
    assert boxes is not None
    return Raw(where, features, boxes[:, :4] if boxes.ndim == 2 else boxes, None, True, classes, scores)


def _array(value: Any, where: str, name: str) -> Array:
    try:
        kind = np.dtype(value[b"type"].decode("ascii"))
        shape, content = tuple(value[b"shape"]), value[b"data"]
        if kind.kind not in "fiu" or math.prod(shape) * kind.itemsize != len(content):
            raise ValueError(f"{kind} {shape} from {len(content)} bytes")
        return np.frombuffer(content, kind).reshape(shape)
    except (KeyError, TypeError, ValueError, AttributeError, UnicodeDecodeError) as error:
        refuse(where, f"`{name}` that is no array ({error})", "one", AGAIN)
