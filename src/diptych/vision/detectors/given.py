"""Regions that a user has already, in any format of `diptych.vision.features`. Of a picture its size alone is asked.

Our own is one npz a picture:

    features (R, F)   boxes (R, 4) x1 y1 x2 y2 in pixels   width, height       perhaps classes (R, C), scores (R,)

The names of the classes stand in `FOLDER/classes.txt`, one a line, and perhaps the name of what made the features in
`FOLDER/extractor.txt`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from diptych.core import FeatureContract, Record, Regions
from diptych.core.contract import GIVEN, FeatureProfile
from diptych.runtime.errors import DataError
from diptych.runtime.files import text_of
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.weights import write_detector
from diptych.vision.features.files import FeatureFiles, open_features, state_of
from diptych.vision.features.profile import PICTURES, name_of, profile_of
from diptych.vision.features.raw import Raw, read_as_data, refuse
from diptych.vision.pictures import picture_size

KIND = GIVEN
NAMES = "classes.txt"
WHOLE_BOXES = "all, each box the whole picture"  # the contract's `selection` where the features had no boxes
MOST_REGIONS = 10_000
LARGEST = 65504.0  # stores keep half precision
LONGEST = 1_000_000  # pixels
ALIKE = 0.02  # sizes whose shapes differ by less are of one picture, perhaps resized
BEYOND = 0.2  # of the picture: boxes that reach further are of another size of it
ROUNDED = 1e-3  # by which half precision may pass 1
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


class GivenRegions:
    """Reads regions that were found elsewhere. Without a folder (in a model's `detector/`) it knows their form.

    `whole_boxes`: the features have no boxes, and each region's is the whole picture.
    """

    needs_pictures = False
    network = None

    def __init__(
        self, feature_size: int, class_names: Sequence[str] = (), folder: Path | None = None, whole_boxes: bool = False
    ) -> None:
        self.feature_size, self.class_names, self.folder = feature_size, tuple(class_names), folder
        self.whole_boxes = whole_boxes
        self.bytes_read = 0
        self.name: str | None = None if folder is None else name_of(folder)
        self.known: FeatureProfile | None = None  # of a model's, where there is no folder

    @classmethod
    def of(cls, folder: Path, records: Iterable[Record], whole_boxes: bool = False) -> GivenRegions:
        """Of the size of the first that is whole; the others must be like it."""
        files = open_features(folder)
        reason = ""
        for record in list(files.matching(list(records))):
            try:
                raw = files.read(record)
                features, classes = _numbers(raw, raw.named, raw.features, 2), _numbers(raw, "classes", raw.classes, 2)
                assert features is not None
                kinds = 0 if classes is None else classes.shape[1]
                cls(features.shape[1], [""] * kinds, whole_boxes=whole_boxes)._one(raw, record)
            except DataError as error:
                reason = reason or str(error)
                continue
            given = cls(features.shape[1], _names(folder, kinds) if kinds else (), folder, whole_boxes)
            given.files = files
            if kinds and not (place := _names_file(folder)).is_file():
                files.notes.append(
                    f"no {place}: the {kinds} classes go by number (class 0, class 1, ...); write their names there, "
                    "one a line"
                )
            return given
        reason = reason or f"no name there fits a picture's; it has {', '.join(list(files.exact)[:3]) or 'none'}"
        raise DataError(f"found no features in {folder} that can be read, wanted those of the pictures: {reason}")

    @cached_property
    def files(self) -> FeatureFiles:
        if self.folder is None:
            raise DataError("the regions were given, and a picture alone has none; give them: --features PATH")
        return open_features(self.folder)

    @cached_property
    def contract(self) -> FeatureContract:
        contract = FeatureContract(
            KIND if self.name is None else f"{KIND}: {self.name}",
            weights="",
            feature_size=self.feature_size,
            class_names=self.class_names,
            profile=self.known if self.folder is None else self._profile(),
        )
        return replace(contract, selection=WHOLE_BOXES) if self.whole_boxes else contract

    def _profile(self) -> FeatureProfile | None:
        """Of pictures all over the files, whichever are asked for."""
        features = []
        for raw in self.files.some(PICTURES):
            with suppress(DataError):  # it is named where it is asked for
                found = _numbers(raw, raw.named, raw.features, 2)
                if found is not None and len(found) and found.shape[1] == self.feature_size:
                    features.append(found)
        return profile_of(features)

    def state(self) -> str:
        """Another one where a file of the features is another, by sizes and times."""
        return "" if self.folder is None else state_of(self.folder)

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        found = []
        for record in records:
            raw = self.files.read(record)
            with read_as_data(raw.where):
                found.append(self._one(raw, record))
        return found

    def _one(self, raw: Raw, record: Record) -> Regions:
        features, classes = _numbers(raw, raw.named, raw.features, 2), _numbers(raw, "classes", raw.classes, 2)
        scores = _numbers(raw, "scores", raw.scores, 1)
        assert features is not None
        self.bytes_read += features.nbytes
        count = len(features)
        if not 1 <= count <= MOST_REGIONS:
            refuse(raw.where, f"{count} regions", f"1 to {MOST_REGIONS}")
        width, height = _size(raw, record, self.whole_boxes)
        boxes = self._boxes(raw, count, width, height)
        wanted = {raw.named: (features, (count, self.feature_size)), "boxes": (boxes, (count, 4)),
                  "scores": (scores, (count,)), "classes": (classes, (count, len(self.class_names)))}  # fmt: skip
        if classes is None and self.class_names:
            refuse(raw.where, "no `classes`", f"them, {(count, len(self.class_names))}, as the other files have them")
        for name, (array, shape) in wanted.items():
            if array is not None and array.shape != shape:
                refuse(raw.where, f"`{name}` {array.shape}", f"{shape}")
        for name, array in (("scores", scores), ("classes", classes)):
            if array is not None and array.size and not 0 <= array.min() <= array.max() <= 1 + ROUNDED:
                refuse(raw.where, f"`{name}` from {array.min():g} to {array.max():g}", "0 to 1")
        regions = Regions(
            boxes=torch.from_numpy(boxes),
            scores=torch.ones(count) if scores is None else torch.from_numpy(scores).clamp(max=1),
            size=(width, height),
            classes=None if classes is None else torch.from_numpy(classes).clamp(max=1),
            features=torch.from_numpy(features),
        )
        if scores is None or raw.best_first:
            return regions
        return regions.take(torch.from_numpy(np.argsort(-scores, kind="stable")))

    def _boxes(self, raw: Raw, count: int, width: int, height: int) -> Floats:
        if self.whole_boxes:
            return np.tile(np.array([0, 0, 1, 1], dtype=np.float32), (count, 1))
        boxes = _numbers(raw, "boxes", raw.boxes, 2)
        if boxes is None:
            refuse(raw.where, "features without boxes", "x1 y1 x2 y2 for each",
                   "get the boxes too, or let each box be the whole picture: --boxes whole")  # fmt: skip
        if boxes.shape != (count, 4):
            refuse(raw.where, f"`boxes` {boxes.shape}", f"{(count, 4)}, one for each of the features")
        return _fractions(raw, boxes, width, height)

    def save(self, folder: Path) -> None:
        described = {"kind": KIND, "feature_size": self.feature_size, "class_names": self.class_names}
        profile = self.contract.profile
        described |= {"whole_boxes": self.whole_boxes, "extractor": self.name}
        write_detector(folder, described | {"profile": None if profile is None else asdict(profile)})

    @classmethod
    def from_request(cls, request: DetectorRequest) -> GivenRegions:
        assert request.features is not None
        return cls.of(request.features, request.records, request.whole_boxes)

    @classmethod
    def from_folder(cls, _: Path, described: dict[str, Any]) -> GivenRegions:
        """What is known of features, without them."""
        given = cls(described["feature_size"], described["class_names"], whole_boxes=described["whole_boxes"])
        profile = described["profile"]
        given.name, given.known = described["extractor"], None if profile is None else FeatureProfile.from_json(profile)
        return given


def _numbers(raw: Raw, name: str, array: Array | None, axes: int) -> Floats | None:
    if array is None:
        return None
    if array.dtype.kind not in "fiub":
        refuse(raw.where, f"`{name}` of type {array.dtype}", "numbers")
    if array.ndim != axes:
        refuse(raw.where, f"`{name}` {array.shape}", f"{axes} axes")
    array = array.astype(np.float32) if array.dtype == np.float16 else array
    if array.size:
        low, high = array.min(), array.max()  # of which one is no number where any is none
        if not (np.isfinite(low) and np.isfinite(high)):
            refuse(raw.where, f"`{name}` with numbers that are not finite", "finite ones")
        most, largest = LARGEST if name == raw.named else LONGEST, max(-float(low), float(high))
        if largest > most:
            refuse(raw.where, f"`{name}` up to {largest:g}", f"at most {most:g}")
    return np.require(array, np.float32, ["C", "W"])


def _size(raw: Raw, record: Record, whole_boxes: bool) -> tuple[int, int]:
    """Of the picture, from the features or from what else is known of it; where those differ, they are of one shape."""
    own = None if raw.size is None else (_side(raw, "width", raw.size[0]), _side(raw, "height", raw.size[1]))
    known = record.size
    doubted = own is None or own[0] == own[1]  # MMF's extraction writes one side as both
    if known is None and doubted and record.image is not None and record.image.is_file():
        known = picture_size(record.image)
    if raw.fractions or whole_boxes:
        return known or own or (1, 1)  # boxes do not depend on it
    if own is None:
        if known is not None:
            return known
        refuse(raw.where, "boxes in pixels and nowhere the size of the picture", "it",
               "give the pictures (--pictures FOLDER), or their `width` and `height` in the data")  # fmt: skip
    if known is None or own == known:
        return own
    if abs(own[0] * known[1] - own[1] * known[0]) <= ALIKE * max(own[0] * known[1], own[1] * known[0]):
        return own  # of the same picture at another size
    if own[0] != own[1]:
        refuse(raw.where, f"features of a picture of {own[0]} x {own[1]} pixels",
               f"those of {record.key!r}, which has {known[0]} x {known[1]}", "see whose they are")  # fmt: skip
    return known


def _side(raw: Raw, name: str, side: Any) -> int:
    array = np.asarray(side)
    value = float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "fiu" else math.nan
    if not 1 <= value < LONGEST or value != int(value):
        found = array.tolist() if array.size < 5 else array.shape
        refuse(raw.where, f"`{name}` {found}", f"1 to {LONGEST} whole pixels")
    return int(value)


def _fractions(raw: Raw, boxes: Floats, width: int, height: int) -> Floats:
    """Of the picture; what reaches beyond it is cut."""
    pixels = 1 if raw.fractions else np.array([width, height, width, height], dtype=np.float32)
    found: Floats = np.asarray(boxes / pixels, dtype=np.float32)
    inside = f"inside {width} x {height} pixels"
    if not raw.fractions and boxes.max() <= 1 and min(width, height) > 4:
        refuse(raw.where, f"boxes up to {boxes.max():g}, which look like fractions", f"pixels, {inside}")
    if found.max() > 1 + BEYOND or found.min() < -BEYOND:
        worst = boxes[np.abs(found - 0.5).max(1).argmax()]
        refuse(raw.where, f"the box {worst.tolist()}", f"x1 y1 x2 y2 {'as fractions' if raw.fractions else inside}",
               "the boxes may be of the picture at another size, or x y w h: write the file anew")  # fmt: skip
    cut = np.clip(found, 0, 1)
    bad = np.flatnonzero((cut[:, 0] >= cut[:, 2]) | (cut[:, 1] >= cut[:, 3]))
    if len(bad):
        refuse(raw.where, f"the box {boxes[bad[0]].tolist()}", f"x1 y1 x2 y2 with an extent {inside}")
    return cut


def _names(folder: Path, count: int) -> list[str]:
    path = _names_file(folder)
    if not path.is_file():
        return [f"class {number}" for number in range(count)]
    try:
        names = text_of(path, "utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: found bytes that are not UTF-8 ({error.start}), wanted one name a line") from error
    names = [name.strip() for name in names if name.strip()]
    if len(names) != count:
        refuse(str(path), f"{len(names)} names", f"one for each of the {count} classes")
    return names


def _names_file(folder: Path) -> Path:
    return (folder if folder.is_dir() else folder.parent) / NAMES
