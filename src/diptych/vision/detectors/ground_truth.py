"""Regions from annotated objects, for tests and as an upper bound for detectors.

Reported model scores do not use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from diptych.core import MASK_CELLS, FeatureContract, Object, Record, Regions
from diptych.runtime.errors import DataError
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.weights import write_detector

KIND = "ground-truth"


class GroundTruth:
    """A detector that returns one region per annotated object.

    The region's feature is a one-hot vector of the object's kind and attribute values.
    """

    needs_pictures = False
    network = None

    def __init__(self, kinds: Sequence[str], attributes: Mapping[str, Sequence[str]], masks: bool = False) -> None:
        """`masks`: True to also return instance masks. For an object without a mask, the mask covers its whole box."""
        self.kinds, self.masks = tuple(kinds), masks
        self.attributes = {name: tuple(values) for name, values in attributes.items()}
        self._columns = {kind: column for column, kind in enumerate(self.kinds)}
        for name, values in self.attributes.items():
            for value in values:
                self._columns[f"{name}={value}"] = len(self._columns)

    @classmethod
    def of(cls, records: Iterable[Record]) -> GroundTruth:
        """Build the detector from the kinds and attributes that occur in `records`.

        Raises DataError if no record has objects.
        """
        objects = [thing for record in records for thing in record.objects]
        if not objects:
            raise DataError("no record has `objects`, which --detector ground-truth needs; choose another detector")
        attributes: dict[str, set[str]] = {}
        for name, value in (item for thing in objects for item in thing.attributes.items()):
            attributes.setdefault(name, set()).add(value)
        values = {name: sorted(attributes[name]) for name in sorted(attributes)}
        return cls(sorted({thing.kind for thing in objects}), values, any(thing.mask for thing in objects))

    @classmethod
    def from_request(cls, request: DetectorRequest) -> GroundTruth:
        return cls.of(request.records)

    @classmethod
    def from_folder(cls, _: Path, described: Mapping[str, Any]) -> GroundTruth:
        return cls(described["kinds"], described["attributes"], described.get("masks", False))

    @property
    def contract(self) -> FeatureContract:
        return FeatureContract(
            extractor=KIND, weights="", feature_size=len(self._columns), class_names=self.kinds, selection="all"
        )

    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        return [self._one(record) for record in records]

    def _one(self, record: Record) -> Regions:
        features = torch.zeros(len(record.objects), len(self._columns))
        for row, thing in zip(features, record.objects, strict=True):
            try:
                row[self._columns[thing.kind]] = 1
                for name, value in thing.attributes.items():
                    row[self._columns[f"{name}={value}"]] = 1
            except KeyError as error:
                raise DataError(f"unknown object kind or attribute {error}; extract again", key=record.key) from error
        boxes = torch.tensor([thing.box for thing in record.objects]).reshape(-1, 4)
        return Regions(
            boxes=boxes,
            scores=torch.ones(len(boxes)),
            size=record.size or (1, 1),
            classes=features[:, : len(self.kinds)],
            features=features,
            masks=self._masks(record.objects) if self.masks else None,
        )

    def _masks(self, objects: Sequence[Object]) -> Bool[Tensor, "R m m"]:
        shown = torch.ones(len(objects), MASK_CELLS, MASK_CELLS, dtype=torch.bool)
        for cells, thing in zip(shown, objects, strict=True):
            if thing.mask:
                cells[:] = torch.tensor([[cell == "#" for cell in row] for row in thing.mask])
        return shown

    def save(self, folder: Path) -> None:
        known = {"kind": KIND, "kinds": self.kinds, "attributes": self.attributes, "masks": self.masks}
        write_detector(folder, known)
