"""Regions that a user has already: one npz a picture. Other than a picture's look, nothing is asked of them.

    features (R, F)   boxes (R, 4) x1 y1 x2 y2 in pixels   width, height       perhaps classes (R, C), scores (R,)

The file of the picture `photos/a.jpg` is `FOLDER/photos/a.npz` or `FOLDER/a.npz`; the names of the classes stand in
`FOLDER/classes.txt`, one a line.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

from diptych.core import FeatureContract, Record, Regions
from diptych.errors import DataError
from diptych.vision.detector import Picture
from diptych.vision.weights import write_detector

KIND = "given"
NAMES = "classes.txt"
MOST_BYTES = 256 * 2**20  # of one array
MOST_REGIONS = 10_000
LARGEST = 65504.0  # stores keep half precision
LONGEST = 1_000_000  # pixels
REQUIRED, OPTIONAL = ("features", "boxes", "width", "height"), ("classes", "scores")
Array = npt.NDArray[Any]


class Given:
    """Reads regions that were found elsewhere. Without a folder (in a model's `detector/`) it knows their form."""

    needs_pictures = False

    def __init__(self, feature_size: int, class_names: Sequence[str] = (), folder: Path | None = None) -> None:
        self.feature_size, self.class_names, self.folder = feature_size, tuple(class_names), folder

    @classmethod
    def of(cls, folder: Path, records: Iterable[Record]) -> Given:
        """Of the size of the first file that can be read; the others must be like it."""
        reason = "there are no records"
        for record in records:
            try:
                path = _path(folder, record)
                arrays = _read(path)
                features, classes = (_numbers(path, arrays, name, 2) for name in ("features", "classes"))
            except DataError as error:
                reason = str(error) if reason == "there are no records" else reason
                continue
            assert features is not None
            return cls(features.shape[1], () if classes is None else _names(folder, classes.shape[1]), folder)
        raise DataError(
            f"found no features in {folder} that can be read, wanted one npz a picture; the first: {reason}"
        )

    @property
    def contract(self) -> FeatureContract:
        return FeatureContract(KIND, weights="", feature_size=self.feature_size, class_names=self.class_names)

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        if self.folder is None:
            raise DataError(
                "the regions were given, and a picture alone has none; give their folder: --features FOLDER"
            )
        return [self._one(_path(self.folder, record)) for record in records]

    def _one(self, path: Path) -> Regions:
        arrays = _read(path)
        width, height = (_side(path, arrays, name) for name in ("width", "height"))
        boxes, features = _numbers(path, arrays, "boxes", 2), _numbers(path, arrays, "features", 2)
        classes, scores = _numbers(path, arrays, "classes", 2), _numbers(path, arrays, "scores", 1)
        assert features is not None
        assert boxes is not None
        count = len(features)
        if not 1 <= count <= MOST_REGIONS:
            _refuse(path, f"{count} regions", f"1 to {MOST_REGIONS}")
        wanted = {"features": (features, (count, self.feature_size)), "boxes": (boxes, (count, 4)),
                  "scores": (scores, (count,)), "classes": (classes, (count, len(self.class_names)))}  # fmt: skip
        if classes is None and self.class_names:
            _refuse(path, "no `classes`", f"them, {(count, len(self.class_names))}, as the other files have them")
        for name, (array, shape) in wanted.items():
            if array is not None and array.shape != shape:
                _refuse(path, f"`{name}` {array.shape}", f"{shape}")
        for name, array in (("scores", scores), ("classes", classes)):
            if array is not None and not ((array >= 0) & (array <= 1)).all():
                _refuse(path, f"`{name}` from {array.min():g} to {array.max():g}", "0 to 1")
        ranked = np.arange(count) if scores is None else np.argsort(-scores, kind="stable")
        regions = Regions(
            boxes=torch.from_numpy(_fractions(path, boxes, width, height)),
            scores=torch.ones(count) if scores is None else torch.from_numpy(scores),
            size=(width, height),
            classes=None if classes is None else torch.from_numpy(classes),
            features=torch.from_numpy(features),
        )
        return regions.take(torch.from_numpy(ranked))

    def save(self, folder: Path) -> None:
        write_detector(folder, {"kind": KIND, "feature_size": self.feature_size, "class_names": self.class_names})


def _path(folder: Path, record: Record) -> Path:
    """By the record's key, or by its picture's name alone."""
    names = [Path(record.key), *([] if record.image is None else [Path(record.image.name)])]
    names = [name for name in (*names, *(Path(name.name) for name in names)) if name.name]
    for name in names:
        for path in (folder / name.with_suffix(".npz"), folder / f"{name}.npz"):
            if _is_inside(path, folder):
                return path
    wanted = names[0].with_suffix(".npz") if names else "npz"
    raise DataError(f"found no {wanted} in {folder}, wanted the features of {record.key!r}; add them there")


def _is_inside(path: Path, folder: Path) -> bool:
    try:
        return path.is_file() and path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError):  # a name too long for the file system, or with a zero byte
        return False


def _refuse(path: Path, found: str, wanted: str) -> NoReturn:
    raise DataError(f"{path}: found {found}, wanted {wanted}; write the file anew")


def _read(path: Path) -> dict[str, Array]:
    """Its arrays. Nothing in the file is run, and nothing larger than MOST_BYTES is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            there = {name.removesuffix(".npy") for name in archive.namelist()}
            arrays = {name: _array(path, archive, name) for name in (*REQUIRED, *OPTIONAL) if name in there}
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(f"{path}: found no npz that can be read ({error}), wanted one; write the file anew") from error
    if missing := [name for name in REQUIRED if name not in arrays]:
        has = ", ".join(sorted(there)[:8]) or "nothing"
        _refuse(path, has, f"also {', '.join(missing)}")
    return arrays


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> Array:
    size = archive.getinfo(f"{name}.npy").file_size
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in header:
            _refuse(path, f"`{name}` in version {version} of the format", "1 or 2")
        shape, _, kind = header[version](file)
    if kind.kind not in "fiu":
        objects = ", which would have to be unpickled" if kind.hasobject else ""
        _refuse(path, f"`{name}` of type {kind}{objects}", "numbers")
    claimed = math.prod(shape) * kind.itemsize
    if claimed > min(size, MOST_BYTES):
        _refuse(path, f"`{name}` {shape}, {claimed} bytes", f"what the file holds, and at most {MOST_BYTES}")
    with archive.open(f"{name}.npy") as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _numbers(path: Path, arrays: dict[str, Array], name: str, axes: int) -> npt.NDArray[np.float32] | None:
    if name not in arrays:
        return None
    array = arrays[name]
    if array.ndim != axes:
        _refuse(path, f"`{name}` {array.shape}", f"{axes} axes")
    if not np.isfinite(array).all():
        _refuse(path, f"`{name}` with numbers that are not finite", "finite ones")
    if array.size and np.abs(array).max() > (LARGEST if name == "features" else LONGEST):
        _refuse(
            path, f"`{name}` up to {np.abs(array).max():g}", f"at most {LARGEST if name == 'features' else LONGEST:g}"
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def _side(path: Path, arrays: dict[str, Array], name: str) -> int:
    array = arrays[name]
    value = float(array.reshape(-1)[0]) if array.size == 1 else math.nan
    if not 1 <= value < LONGEST or value != int(value):
        _refuse(path, f"`{name}` {array.tolist() if array.size < 5 else array.shape}", f"1 to {LONGEST} whole pixels")
    return int(value)


def _fractions(path: Path, boxes: npt.NDArray[np.float32], width: int, height: int) -> npt.NDArray[np.float32]:
    """Of the picture; what reaches beyond it is cut."""
    cut = np.clip(boxes / np.array([width, height, width, height], dtype=np.float32), 0, 1)
    bad = np.flatnonzero((cut[:, 0] >= cut[:, 2]) | (cut[:, 1] >= cut[:, 3]))
    if len(bad):
        _refuse(
            path, f"the box {boxes[bad[0]].tolist()}", f"x1 y1 x2 y2 with an extent inside {width} x {height} pixels"
        )
    return cut.astype(np.float32)


def _names(folder: Path, count: int) -> list[str]:
    path = folder / NAMES
    if not path.is_file():
        return [f"class {number}" for number in range(count)]
    try:
        names = path.read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: found bytes that are not UTF-8 ({error.start}), wanted one name a line") from error
    names = [name.strip() for name in names if name.strip()]
    if len(names) != count:
        _refuse(path, f"{len(names)} names", f"one for each of the {count} classes")
    return names
