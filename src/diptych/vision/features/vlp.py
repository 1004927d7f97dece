"""Unified VLP's h5: PREFIX_featXYZ.h5 and PREFIX_clsXYZ.h5, where XYZ are the last three characters of an image's id.

Each holds one data set per image, named by the id: features (100, 2048) and classes (100, 1601). Boxes (100, 6: x1 y1
x2 y2 class confidence, in pixels) are in one h5 for all images, as released, or in bboxXYZ.h5 per part, as the
extractor writes them. The size of an image is in none of the files.
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
from diptych.vision.features.raw import Array, Listing, Raw, Unit, needed, refuse

PART = re.compile(r"(?P<prefix>.*?)_?(?P<what>feat|cls|bbox)(?P<part>.{3})\.(h5|hdf5)$")
ENDINGS = (".h5", ".hdf5")
PARTS = 4000  # files of a release: 3 for each of 1,000 parts, and a few more
COLUMNS = 6  # numbers per box


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: found no h5 that can be read ({error}), wanted one; get the file again")


@cache
def _may_be_open() -> int:
    """Raise the limit of open files where possible, and return how many h5 files may be open at once.

    Images are spread over the parts in any order, so fewer open files would mean one opening per image.
    """
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
    """The most recently used h5 files, kept open up to the limit of the process."""

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
            # h5py returns a name that is no UTF-8 as bytes
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
    """The boxes of a release: in files for all images (`whole`), or one file per part."""

    whole: tuple[Path, ...]
    parts: dict[str, Path]
    opened: OpenFiles

    def of(self, name: str, where: str) -> Array | None:
        """Return the boxes of an image (R, 6), None where the release has none at all. Raises DataError."""
        for path in self.whole:
            if self.opened.has(path, name):
                return self._checked(self.opened.array(path, name, where), path, where)
        part = name[-3:]
        if part in self.parts:
            return self._checked(self.opened.array(self.parts[part], name, where), self.parts[part], where)
        if self.whole or self.parts:
            files = ", ".join(path.name for path in self.whole) or f"{len(self.parts)} parts, without bbox{part}.h5"
            refuse(where, f"no boxes of {name} in {files}", "them", "get the missing part of the set")
        return None

    def _checked(self, boxes: Array, path: Path, where: str) -> Array:
        if boxes.ndim != 2 or boxes.shape[1] != COLUMNS:
            refuse(where, f"boxes {boxes.shape} in {path}", "six numbers a region: x1 y1 x2 y2 class confidence")
        return boxes


@dataclass(frozen=True)
class ReleaseFiles:
    """The h5 files of one prefix."""

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
            refuse(where, f"no cls{part}.h5 next to it", f"it, as {other} is there", "get the missing part of the set")
        features = self.opened.array(self.features[part], name, where)
        classes = self.opened.array(self.classes[part], name, where) if self.classes else None
        boxes = self.boxes.of(name, where)
        if boxes is None:
            return Raw(where, features, classes=classes)
        return Raw(where, features, boxes[:, :4], classes=classes, scores=boxes[:, 5])

    def _has(self, part: str, name: str) -> bool:
        return part in self.features and self.opened.has(self.features[part], name)


def units(listing: Listing) -> list[Unit]:
    opened = OpenFiles()
    boxes = boxes_below(listing) or Boxes((), {}, opened)
    prefixes: dict[str, dict[str, dict[str, Path]]] = {}
    for path in listing.ending(*ENDINGS):
        if (match := PART.match(path.name)) is not None:
            prefixes.setdefault(match["prefix"], {}).setdefault(match["what"], {}).setdefault(match["part"], path)
    return [
        ReleaseFiles(next(iter(parts["feat"].values())).parent, parts["feat"], parts.get("cls", {}), boxes, opened)
        for parts in prefixes.values()
        if "feat" in parts
    ]


def boxes_below(listing: Listing) -> Boxes | None:
    """Return the boxes of a VLP release below a path, None where there are none."""
    matches = [(path, PART.match(path.name)) for path in listing.ending(*ENDINGS)]
    whole = tuple(path for path, match in matches if match is None)
    parts = {match["part"]: path for path, match in matches if match is not None and match["what"] == "bbox"}
    return Boxes(whole, parts, OpenFiles()) if whole or parts else None
