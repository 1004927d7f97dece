"""Regions that a user extracted with another program, in any format of `diptych.vision.features`.

Only the size of an image file is read.

Diptych's own format is one npz file per image:

    features (R, F)   boxes (R, 4) x1 y1 x2 y2 in pixels   width, height       optionally classes (R, C), scores (R,)

`FOLDER/classes.txt` holds the names of the classes, one per line. The optional `FOLDER/extractor.txt` holds the name of
the extractor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from diptych.core import FeatureContract, Record, Regions
from diptych.core.contract import GIVEN, FeatureProfile
from diptych.runtime.configs import of_json
from diptych.runtime.errors import DataError
from diptych.runtime.files import text_of
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.weights import write_detector
from diptych.vision.features.files import FeatureFiles, NoFeatures, open_features, state_of
from diptych.vision.features.h5 import AHEAD
from diptych.vision.features.profile import PICTURES, name_of, profile_of
from diptych.vision.features.raw import Raw, refuse
from diptych.vision.image_files import BEYOND, picture_size, same_shape

KIND = GIVEN
NAMES = "classes.txt"
WHOLE_BOXES = "all, each box the whole picture"  # value of the contract's `selection` for features without boxes
MOST_REGIONS = 10_000
LARGEST = 65504.0  # the largest float16 number, because stores hold features in float16
LONGEST = 1_000_000  # maximum of a width, height or coordinate, in pixels
ROUNDED = 1e-3  # maximum amount by which a probability may exceed 1, because of rounding to float16
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


class GivenRegions:
    """A detector that reads regions made by another program.

    A copy in a model's folder `detector/` has no features. It stores only the feature size and class names.

    `whole_boxes`: True if the features have no boxes. Each region's box is then the whole image.
    """

    needs_pictures = False
    network = None

    def __init__(
        self, feature_size: int, class_names: Sequence[str] = (), folder: Path | None = None, whole_boxes: bool = False
    ) -> None:
        self.feature_size, self.class_names, self.folder = feature_size, tuple(class_names), folder
        self.whole_boxes = whole_boxes
        self.bytes_read = 0
        self.damaged: dict[str, str] = {}  # key of an image with invalid features -> the reason
        self.name: str | None = None if folder is None else name_of(folder)
        self.known: FeatureProfile | None = None  # the saved feature profile, used if there is no folder

    @classmethod
    def of(cls, folder: Path, records: Iterable[Record], whole_boxes: bool = False) -> GivenRegions:
        """Open the features in `folder`.

        Feature size and number of classes come from the first record with valid features.

        In `detect`, the features of all records must have this size and number of classes. Raises DataError if no
        record has valid features.
        """
        files = open_features(folder)
        reason = ""
        for record in list(files.matching(list(records))):
            try:
                width, kinds = files.read(record, partial(cls._form, record=record, whole_boxes=whole_boxes))
            except DataError as error:
                reason = reason or str(error)
                continue
            given = cls(width, _names(folder, kinds) if kinds else (), folder, whole_boxes)
            given.files = files
            if kinds and not (place := _names_file(folder)).is_file():
                files.notes.append(f"there is no {place}, so the {kinds} classes are named class 0, class 1, ...; "
                                   "write their names to this file, one per line")  # fmt: skip
            return given
        reason = reason or f"no name matches an image; the first names are {', '.join(list(files.exact)[:3]) or 'none'}"
        raise DataError(f"found no readable features of the images in {folder}: {reason}")

    @classmethod
    def _form(cls, raw: Raw, record: Record, whole_boxes: bool) -> tuple[int, int]:
        """Return the feature size and the number of classes of one image's features.

        Raises DataError if they are invalid.
        """
        width = _numbers(raw, raw.named, raw.features, 2).shape[1]
        kinds = 0 if raw.classes is None else _numbers(raw, "classes", raw.classes, 2).shape[1]
        cls(width, [""] * kinds, whole_boxes=whole_boxes)._one(raw, record)
        return width, kinds

    @cached_property
    def files(self) -> FeatureFiles:
        if self.folder is None:
            raise DataError("the model needs precomputed regions; pass a folder or file with --features PATH")
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
        """Compute the profile of the features from a sample of images that is spread over all files."""
        features = []
        for raw in self.files.some(PICTURES):
            with suppress(DataError):  # skipped here, because `detect` reports invalid features
                values = _numbers(raw, raw.named, raw.features, 2)
                if len(values) and values.shape[1] == self.feature_size:
                    features.append(values)
        return profile_of(features)

    def state(self) -> str:
        """Return a digest that changes when the size or the modification time of any feature file changes."""
        return "" if self.folder is None else state_of(self.folder)

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        regions = []
        for number, record in enumerate(records):
            for one in records[number + AHEAD * (number > 0) : number + AHEAD + 1]:
                self.files.expect(one)
            try:
                regions.append(self.read(record))
                self.bytes_read += cast(torch.Tensor, regions[-1].features).nbytes
            except NoFeatures:
                raise
            except DataError as error:
                self.damaged[record.key] = str(error)
                raise
        return regions

    def read(self, record: Record) -> Regions:
        """Return the regions of one record. Raises DataError if there are none, or they are invalid."""
        return self.files.read(record, partial(self._one, record=record))

    def _one(self, raw: Raw, record: Record) -> Regions:
        features = _numbers(raw, raw.named, raw.features, 2)
        classes = None if raw.classes is None else _numbers(raw, "classes", raw.classes, 2)
        scores = None if raw.scores is None else _numbers(raw, "scores", raw.scores, 1)
        count = len(features)
        if not 1 <= count <= MOST_REGIONS:
            refuse(raw.where, f"{count} regions", f"1 to {MOST_REGIONS}")
        width, height = _size(raw, record, self.whole_boxes)
        boxes = self._boxes(raw, count, width, height)
        wanted = {raw.named: (features, (count, self.feature_size)), "boxes": (boxes, (count, 4)),
                  "scores": (scores, (count,)), "classes": (classes, (count, len(self.class_names)))}  # fmt: skip
        if classes is None and self.class_names:
            refuse(raw.where, "no `classes`", f"shape {(count, len(self.class_names))}, as in other files")
        for name, (array, shape) in wanted.items():
            if array is not None and array.shape != shape:
                refuse(raw.where, f"`{name}` of shape {array.shape}", f"{shape}")
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
        if raw.boxes is None:
            remedy = "add the boxes, or pass --boxes whole to use the whole image as each box"
            refuse(raw.where, "features without boxes", "a box (x1 y1 x2 y2) for each", remedy)
        boxes = _numbers(raw, "boxes", raw.boxes, 2)
        if boxes.shape != (count, 4):
            refuse(raw.where, f"`boxes` of shape {boxes.shape}", f"{(count, 4)}, one box per feature")
        return _fractions(raw, boxes, width, height)

    def save(self, folder: Path) -> None:
        profile = self.contract.profile
        described = {"kind": KIND, "feature_size": self.feature_size, "class_names": self.class_names,
                     "whole_boxes": self.whole_boxes, "extractor": self.name}  # fmt: skip
        write_detector(folder, described | {"profile": None if profile is None else asdict(profile)})

    @classmethod
    def from_request(cls, request: DetectorRequest) -> GivenRegions:
        assert request.features is not None
        return cls.of(request.features, request.records, request.whole_boxes)

    @classmethod
    def from_folder(cls, _: Path, described: dict[str, Any]) -> GivenRegions:
        """Open a saved description: feature size, class names and profile, without features."""
        given = cls(described["feature_size"], described["class_names"], whole_boxes=described["whole_boxes"])
        given.name, profile = described["extractor"], described["profile"]
        given.known = None if profile is None else of_json(FeatureProfile, profile)
        return given


def _numbers(raw: Raw, name: str, array: Array, axes: int) -> Floats:
    """Return an array as float32.

    Raises DataError if it is not numeric, does not have `axes` axes, or has values out of range.
    """
    if array.dtype.kind not in "fiub":
        refuse(raw.where, f"`{name}` of type {array.dtype}", "numbers")
    if array.ndim != axes:
        refuse(raw.where, f"`{name}` of shape {array.shape}", f"{axes} axes")
    array = array.astype(np.float32) if array.dtype == np.float16 else array
    if array.size:
        low, high = array.min(), array.max()  # if any value is NaN, both are NaN
        if not (np.isfinite(low) and np.isfinite(high)):
            refuse(raw.where, f"`{name}` with numbers that are not finite", "finite numbers")
        most, largest = LARGEST if name == raw.named else LONGEST, max(-float(low), float(high))
        if largest > most:
            refuse(raw.where, f"`{name}` up to {largest:g}", f"at most {most:g}")
    return np.require(array, np.float32, ["C", "W"])


def _size(raw: Raw, record: Record, whole_boxes: bool) -> tuple[int, int]:
    """Return the image's width and height in pixels, from the feature file or the record.

    Raises DataError if the sizes in the file and in the record have different aspect ratios, or if boxes are in pixels
    and no size is known.
    """
    own = None if raw.size is None else (_side(raw, "width", raw.size[0]), _side(raw, "height", raw.size[1]))
    known = record.size
    if known is None and record.image is not None and record.image.is_file():
        known = picture_size(record.image)
    if raw.fractions or whole_boxes:
        return known or own or (1, 1)  # such boxes do not depend on the size in pixels
    if own is None:
        if known is not None:
            return known
        remedy = "pass the images (--images FOLDER), or add `width` and `height` to the data"
        refuse(raw.where, "boxes in pixels without the size of the image", "the size", remedy)
    if known is None or own == known:
        return own
    if same_shape(own, known):
        return own  # the boxes are for a resized version of the image
    if own[0] != own[1] or not raw.one_side:
        wanted = f"features of {record.key!r}, which has {known[0]} x {known[1]}"
        remedy = "check which image the features belong to"
        refuse(raw.where, f"features of an image of {own[0]} x {own[1]} pixels", wanted, remedy)
    return known


def _side(raw: Raw, name: str, side: Any) -> int:
    array = np.asarray(side)
    value = float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "fiu" else math.nan
    if not 1 <= value < LONGEST or value != int(value):
        actual = array.tolist() if array.size < 5 else array.shape
        refuse(raw.where, f"`{name}` {actual}", f"a whole number of pixels from 1 to {LONGEST}")
    return int(value)


def _fractions(raw: Raw, boxes: Floats, width: int, height: int) -> Floats:
    """Convert boxes to fractions of the image, clipped to 0 to 1. Raises DataError for invalid boxes."""
    pixels = 1 if raw.fractions else np.array([width, height, width, height], dtype=np.float32)
    fractions: Floats = np.asarray(boxes / pixels, dtype=np.float32)
    inside = f"inside the image of {width} x {height} pixels"
    if not raw.fractions and boxes.max() <= 1 + BEYOND and min(width, height) > 4:
        refuse(raw.where, f"boxes up to {boxes.max():g}, which look like fractions", f"boxes in pixels, {inside}")
    if fractions.max() > 1 + BEYOND or fractions.min() < -BEYOND:
        worst = boxes[np.abs(fractions - 0.5).max(1).argmax()]
        remedy = "the boxes may be for another size of the image, or in the form x y w h: write the file again"
        refuse(
            raw.where, f"the box {worst.tolist()}", f"x1 y1 x2 y2 {'from 0 to 1' if raw.fractions else inside}", remedy
        )
    cut = np.clip(fractions, 0, 1)
    bad = np.flatnonzero((cut[:, 0] >= cut[:, 2]) | (cut[:, 1] >= cut[:, 3]))
    if len(bad):
        refuse(raw.where, f"the box {boxes[bad[0]].tolist()}", f"x1 y1 x2 y2 with an area above 0 {inside}")
    return cut


def _names(folder: Path, count: int) -> list[str]:
    path = _names_file(folder)
    if not path.is_file():
        return [f"class {number}" for number in range(count)]
    try:
        names = text_of(path).split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 (at byte {error.start}); save it as UTF-8, one name per line") from error
    names = [name.strip() for name in names if name.strip()]
    if len(names) != count:
        refuse(str(path), f"{len(names)} names", f"one for each of the {count} classes")
    return names


def _names_file(folder: Path) -> Path:
    return (folder if folder.is_dir() else folder.parent) / NAMES
