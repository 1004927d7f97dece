"""Unified VLP's h5: PREFIX_featXYZ.h5 and PREFIX_clsXYZ.h5, where XYZ are the last three characters of a picture's id.

In each a data set a picture, its name the id: (100, 2048) and (100, 1601). The boxes (100, 6: x1 y1 x2 y2 class
confidence, in pixels) lie in one h5 for all, as released, or in bboxXYZ.h5 a part, as the extractor writes them. How
large a picture is stands nowhere.
"""

import re
import sys
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from diptych.runtime.errors import DataError
from diptych.vision.features.raw import Array, FeatureFormat, Listing, Raw, Unit, needed, refuse

PART = re.compile(r"(?P<prefix>.*?)_?(?P<what>feat|cls|bbox)(?P<part>.{3})\.(h5|hdf5)$")
ENDINGS = (".h5", ".hdf5")
PARTS = 4000  # files of a release: three of each of a thousand, and some
COLUMNS = 6  # of the boxes


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: found no h5 that can be read ({error}), wanted one; get the file again")


@cache
def _may_be_open() -> int:
    """Files at once: pictures lie in any order over a release's parts, and each would be opened again for each."""
    if sys.platform == "win32":
        return 256
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * PARTS if most == resource.RLIM_INFINITY else min(2 * PARTS, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return wanted // 2


@dataclass
class OpenFiles:
    """h5 files that are open, the latest of them; a process may not have as many open as a release has."""

    files: OrderedDict[Path, Any] = field(default_factory=OrderedDict)

    def file(self, path: Path) -> Any:
        if path in self.files:
            self.files.move_to_end(path)
            return self.files[path]
        h5py = needed("h5py", f"{path.name}, an h5,")
        try:
            self.files[path] = h5py.File(path, "r")
        except OSError as error:
            raise _damaged(path, error) from None
        if len(self.files) > _may_be_open():
            self.files.popitem(last=False)[1].close()
        return self.files[path]

    def names(self, path: Path) -> list[str]:
        try:
            # a name that is no UTF-8 comes as bytes
            return [name if isinstance(name, str) else name.decode("utf-8", "replace") for name in self.file(path)]
        except RuntimeError as error:
            raise _damaged(path, error) from None

    def has(self, path: Path, name: str) -> bool:
        try:
            return name in self.file(path)
        except RuntimeError as error:
            raise _damaged(path, error) from None

    def array(self, path: Path, name: str, where: str) -> Array:
        try:
            return np.asarray(self.file(path)[name][()])
        except KeyError:
            refuse(where, f"no {name} in {path}", "it there, as in the other parts of the set", "get that file again")
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            refuse(where, f"a data set in {path} that cannot be read ({error})", "it", "get that file again")


@dataclass(frozen=True)
class Boxes:
    """Of all pictures, or a part."""

    whole: tuple[Path, ...]
    parts: dict[str, Path]
    opened: OpenFiles

    def of(self, name: str, where: str) -> Array | None:
        """(R, 6), None where there are no boxes at all."""
        for path in self.whole:
            if self.opened.has(path, name):
                return self._checked(self.opened.array(path, name, where), path, where)
        part = self.parts.get(name[-3:])
        if part is not None:
            return self._checked(self.opened.array(part, name, where), part, where)
        if self.whole or self.parts:
            there = (
                ", ".join(path.name for path in self.whole) or f"{len(self.parts)} parts, without bbox{name[-3:]}.h5"
            )
            refuse(where, f"no boxes of {name} in {there}", "them", "get the missing part of the set")
        return None

    def _checked(self, boxes: Array, path: Path, where: str) -> Array:
        if boxes.ndim != 2 or boxes.shape[1] != COLUMNS:
            refuse(where, f"boxes {boxes.shape} in {path}", "six numbers a region: x1 y1 x2 y2 class confidence")
        return boxes


@dataclass(frozen=True)
class ReleaseFiles:
    path: Path
    features: dict[str, Path]  # by part
    classes: dict[str, Path]
    boxes: Boxes
    opened: OpenFiles

    def names(self) -> Iterable[str]:
        return [name for path in self.features.values() for name in self.opened.names(path)]

    def read(self, name: str) -> Raw:
        part = next(p for p in dict.fromkeys((name[-3:], *self.features)) if self._has(p, name))
        where = f"{self.features[part]}, {name}"
        if self.classes and part not in self.classes:
            other = next(iter(self.classes.values())).name
            refuse(where, f"no cls{part}.h5 beside it", f"it, as {other} is there", "get the missing part of the set")
        features = self.opened.array(self.features[part], name, where)
        classes = self.opened.array(self.classes[part], name, where) if self.classes else None
        boxes = self.boxes.of(name, where)
        return Raw(where, features, None if boxes is None else boxes[:, :4], classes=classes,
                   scores=None if boxes is None else boxes[:, 5])  # fmt: skip

    def _has(self, part: str, name: str) -> bool:
        return part in self.features and self.opened.has(self.features[part], name)


def units(listing: Listing) -> list[Unit]:
    opened, boxes = OpenFiles(), boxes_below(listing)
    found: dict[str, dict[str, dict[str, Path]]] = {}
    for path in listing.ending(*ENDINGS):
        if (match := PART.match(path.name)) is not None:
            found.setdefault(match["prefix"], {}).setdefault(match["what"], {}).setdefault(match["part"], path)
    return [
        ReleaseFiles(next(iter(parts["feat"].values())).parent, parts["feat"], parts.get("cls", {}),
              boxes or Boxes((), {}, opened), opened)
        for parts in found.values()
        if "feat" in parts
    ]  # fmt: skip


FORMAT = FeatureFormat("h5", units)


def boxes_below(listing: Listing) -> Boxes | None:
    """The boxes of a release of VLP's."""
    matches = [(path, PART.match(path.name)) for path in listing.ending(*ENDINGS)]
    whole = tuple(path for path, match in matches if match is None)
    parts = {match["part"]: path for path, match in matches if match is not None and match["what"] == "bbox"}
    return Boxes(whole, parts, OpenFiles()) if whole or parts else None
