"""LMDB folders (data.mdb) of UNITER (feat_thT_maxM_minN, plain or compressed) and of MMF.

UNITER  Values are msgpack of numpy arrays, or npz if compressed. The key `__keys__` has a JSON list of the names.
MMF     Values are pickles of a dictionary, read without running code. The key `keys` has a pickled list of the names.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from diptych.runtime import unpickle
from diptych.runtime.errors import DataError, explained
from diptych.runtime.files import parse_json
from diptych.vision.features.lmdb_pages import CutDatabase
from diptych.vision.features.npy import of_info
from diptych.vision.features.npz import read_npz
from diptych.vision.features.raw import NAMED, Array, Listing, Raw, Unit, needed, refuse

LISTS = (b"__keys__", b"keys")
ZIP, PICKLE = b"PK", b"\x80"
AGAIN = "download the folder again"


class OpenDatabase:
    """An open LMDB. A process may open the same LMDB only once, so all readers share this object."""

    open: ClassVar[WeakValueDictionary[Path, OpenDatabase]] = WeakValueDictionary()

    def __init__(self, path: Path) -> None:
        lmdb = needed("lmdb", f"{path.name}, an LMDB,")
        with explained(DataError, f"{path}: not a readable LMDB", AGAIN, lmdb.Error):
            self.environment = lmdb.open(str(path), readonly=True, lock=False, readahead=False, max_readers=1)
        # LMDB maps the file into memory, so reading a page beyond its end would crash the process.
        page, there = self.environment.stat()["psize"], (path / "data.mdb").stat().st_size
        wanted = (self.environment.info()["last_pgno"] + 1) * page
        self.cut, self.fault = None, ""
        if there < wanted:
            self.cut = CutDatabase(path / "data.mdb", page)
            self.fault = f"the LMDB is truncated: found {there} bytes, expected {wanted} as in its header"
            if not self.cut.keys():
                raise DataError(f"{path}: {self.fault}, and no entry is complete; {AGAIN}")

    @classmethod
    def of(cls, path: Path) -> OpenDatabase:
        path = path.resolve()
        return cls.open.get(path) or cls.open.setdefault(path, cls(path))

    def __del__(self) -> None:
        if (environment := getattr(self, "environment", None)) is not None:
            environment.close()


@dataclass(frozen=True)
class Database:
    path: Path  # the folder that contains data.mdb
    problems: list[str] = field(default_factory=list, compare=False)  # a message for each invalid name

    @cached_property
    def _open(self) -> OpenDatabase:
        return OpenDatabase.of(self.path)

    def _value(self, key: bytes) -> bytes | None:
        lmdb = needed("lmdb", "an LMDB")
        if self._open.cut is not None:
            return self._open.cut.get(key)
        problem, opened = f"{self.path}: {key[:60]!r} cannot be read", self._open.environment
        with explained(DataError, problem, AGAIN, lmdb.Error), opened.begin() as transaction:
            value = transaction.get(key)
        return None if value is None else bytes(value)

    def names(self) -> Iterable[str]:
        names = list(self._names())
        if (cut := self._open.cut) is not None:
            lost = [name for name in names if cut.get(name.encode()) is None]
            first = f" ({', '.join(lost[:NAMED])})" if lost else ""
            self.problems.append(
                f"{self.path}: {self._open.fault}; {len(names) - len(lost)} entries are read, {len(lost)} more are "
                f"known to be cut off{first}; {AGAIN}"
            )
        return names

    def _names(self) -> Iterable[str]:
        for key in LISTS:
            value = self._value(key)
            if value is not None:
                return self._listed(value, key.decode())
        if (cut := self._open.cut) is not None:
            return [key.decode("utf-8", "replace") for key in (*cut.keys(), *cut.cut()) if key not in LISTS]
        with self._open.environment.begin() as transaction:
            names = [bytes(key).decode("utf-8", "replace") for key in transaction.cursor().iternext(values=False)]
        if not names:
            raise DataError(f"{self.path}: the LMDB is empty; {AGAIN}")
        return names

    def _listed(self, value: bytes, name: str) -> list[str]:
        where = f"{self.path}, {name}"
        try:
            names = unpickle.loads(value, where) if value[:1] == PICKLE else parse_json(value)
        except ValueError as error:
            refuse(where, f"bytes that are not JSON ({error})", "a list of names", AGAIN)
        if not isinstance(names, list) or (names and not any(isinstance(name, str | bytes) for name in names)):
            refuse(where, f"{type(names).__name__}", "a list of names", AGAIN)
        if not names:
            refuse(where, "an empty list", "names of images", AGAIN)

        whole = [name for name in names if isinstance(name, str | bytes)]
        if len(whole) < len(names):
            self.problems.append(f"{where}: {len(names) - len(whole)} entries that are not names are left out")
        return [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in whole]

    def read(self, name: str) -> Raw:
        where, value = f"{self.path}, {name}", self._value(name.encode())
        if value is None:
            shown = "nothing" if self._open.cut is None else "an LMDB that is truncated before this entry"
            refuse(where, shown, "the regions of this name, which is in the list of names", AGAIN)
        if value.startswith(ZIP):
            return read_npz(io.BytesIO(value), where)
        if value.startswith(PICKLE):
            return of_info(unpickle.loads(value, where), None, where)
        return _of_msgpack(value, where)


def units(listing: Listing) -> list[Unit]:
    return [Database(path.parent) for path in listing.ending(".mdb") if path.name == "data.mdb"]


def _of_msgpack(value: bytes, where: str) -> Raw:
    """Convert UNITER's dictionary of arrays.

    Each array has the form that msgpack-numpy writes: {nd, type, kind, shape, data}.
    """
    msgpack = needed("msgpack", "UNITER's LMDB")
    try:
        arrays = msgpack.unpackb(value, raw=True, strict_map_key=False)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        refuse(where, f"bytes that are not msgpack ({error})", "msgpack", AGAIN)
    if not isinstance(arrays, dict) or b"norm_bb" not in arrays or b"features" not in arrays:
        refuse(where, f"{type(arrays).__name__} without `norm_bb` or `features`", "UNITER's dict of arrays", AGAIN)
    features, boxes = (_array(arrays[name], where, name.decode()) for name in (b"features", b"norm_bb"))
    scores, classes = (
        _array(arrays[name], where, name.decode()) if name in arrays else None for name in (b"conf", b"soft_labels")
    )
    return Raw(where, features, boxes[:, :4] if boxes.ndim == 2 else boxes, None, True, classes, scores)


def _array(value: Any, where: str, name: str) -> Array:
    try:
        kind = np.dtype(value[b"type"].decode("ascii"))
        shape, content = tuple(value[b"shape"]), value[b"data"]
        if kind.kind not in "fiu" or math.prod(shape) * kind.itemsize != len(content):
            raise ValueError(f"found {len(content)} bytes for {kind} {shape}")
        return np.frombuffer(content, kind).reshape(shape)
    except (KeyError, TypeError, ValueError, AttributeError, UnicodeDecodeError) as error:
        refuse(where, f"`{name}` that is not an array ({error})", "an array", AGAIN)
