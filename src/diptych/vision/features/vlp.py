"""Unified VLP's h5 files PREFIX_featXYZ.h5 and PREFIX_clsXYZ.h5. XYZ are the last three characters of an image's id.

Each file has one dataset per image, named by the id: features (100, 2048) or classes (100, 1601). Boxes are datasets
(100, 6): x1 y1 x2 y2 in pixels, class, confidence. The released files have all boxes in one h5; the extractor writes
one file bboxXYZ.h5 per part. No file has the size of an image.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from diptych.vision.features.h5 import NONE, Arrays, OpenFiles
from diptych.vision.features.raw import Array, Listing, Raw, Unit, each_whole, refuse

PART = re.compile(r"(?P<prefix>.*?)_?(?P<what>feat|cls|bbox)(?P<part>.{3})\.(h5|hdf5)$")
ENDINGS = (".h5", ".hdf5")
COLUMNS = 6  # numbers per box in the file


@dataclass(frozen=True)
class Boxes:
    """The boxes of a VLP release: in files that cover all images (`whole`), or in one file per part."""

    whole: tuple[Path, ...]
    parts: dict[str, Path]
    opened: OpenFiles

    def of(self, name: str, where: str, read: Arrays = NONE) -> Array | None:
        """Return the boxes (R, 6) of the image `name`, or None if the release has no boxes. Raises DataError."""
        part = name[-3:]
        tried = ((one, self.opened.find(one, name, where, read)) for one in self.whole)
        path, boxes = next((one for one in tried if one[1] is not None), (self.parts.get(part), None))
        if path is None and (self.whole or self.parts):
            files = ", ".join(one.name for one in self.whole) or f"{len(self.parts)} parts, without bbox{part}.h5"
            refuse(where, f"no boxes of {name} in {files}", "its boxes", "download the missing file of the set")
        if boxes is None and path is not None:
            boxes = self.opened.array(path, name, where, read)
        if boxes is not None and (boxes.ndim != 2 or boxes.shape[1] != COLUMNS):
            refuse(where, f"boxes {boxes.shape} in {path}", "six numbers per region: x1 y1 x2 y2 class confidence")
        return boxes


@dataclass(frozen=True)
class ReleaseFiles:
    """The h5 files of a VLP release with the same prefix."""

    path: Path
    features: dict[str, Path]  # last three characters of a file's name -> the file
    classes: dict[str, Path]
    boxes: Boxes
    opened: OpenFiles
    problems: list[str] = field(default_factory=list, compare=False)  # a message for each part that cannot be read

    def names(self) -> Iterable[str]:
        parts = each_whole(self.features.values(), self.opened.names, self.problems)
        return [name for names in parts for name in names]

    def expect(self, name: str) -> None:
        """Request the arrays of an image early. A later `read` of the same name waits for them."""
        self.opened.expect(*self._usual(name))

    def _usual(self, name: str) -> tuple[list[Path], str, str]:
        """Return the files that most likely have an image's arrays, its name in them, and the location for errors."""
        own = name[-3:]
        usual = self.features.get(own), self.classes.get(own), next(iter(self.boxes.whole), self.boxes.parts.get(own))
        return [path for path in usual if path is not None], name, f"{self.features.get(own, self.path)}, {name}"

    def read(self, name: str) -> Raw:
        own, read = name[-3:], self.opened.each(*self._usual(name))
        for part in dict.fromkeys((own, *self.features)):
            where = f"{self.features.get(part, self.path)}, {name}"
            features = self.opened.find(self.features[part], name, where, read) if part in self.features else None
            if features is not None:
                break
        else:
            refuse(where, "no features", "the features that were in the list of names", "download that file again")
        if self.classes and part not in self.classes:
            other = next(iter(self.classes.values())).name
            refuse(where, f"no cls{part}.h5", f"it, because {other} exists", "download the missing file of the set")
        classes = self.opened.array(self.classes[part], name, where, read) if self.classes else None
        boxes = self.boxes.of(name, where, read)
        if boxes is None:
            return Raw(where, features, classes=classes)
        return Raw(where, features, boxes[:, :4], classes=classes, scores=boxes[:, 5])


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
    """Return the box files of a VLP release among the listed files, or None if there are none."""
    matches = [(path, PART.match(path.name)) for path in listing.ending(*ENDINGS)]
    whole = tuple(path for path, match in matches if match is None)
    parts = {match["part"]: path for path, match in matches if match is not None and match["what"] == "bbox"}
    return Boxes(whole, parts, OpenFiles()) if whole or parts else None
