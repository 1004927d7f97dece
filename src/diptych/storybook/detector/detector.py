"""The small detector behind the one interface of detectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from diptych.core import FeatureContract, Record, Regions
from diptych.storybook.detector.network import DetectorConfig, Maps, SmallDetector
from diptych.storybook.detector.training import best_boxes
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.letterbox import letterbox, to_picture_fractions
from diptych.vision.detectors.selection import STORYBOOK, Selection
from diptych.vision.detectors.weights import fingerprint, restored, write_detector

KIND = "storybook-detector"
CANDIDATES = 24  # peaks of a picture that are described; a rule that wants more regions gets more


class StorybookDetector:
    needs_pictures = True

    def __init__(self, network: SmallDetector, selection: Selection = STORYBOOK) -> None:
        self.network, self.selection = network.eval().to(memory_format=torch.channels_last), selection

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.network)

    @property
    def contract(self) -> FeatureContract:
        shape = self.network.shape
        return FeatureContract(
            extractor=KIND,
            weights=self._fingerprint,
            feature_size=shape.feature_size,
            class_names=shape.class_names,
            selection=str(self.selection),
            whole=True,
        )

    @torch.no_grad()  # not inference mode: its tensors could not be trained on
    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        if not pictures:
            return []
        shape = self.network.shape
        squares, shares = letterbox(pictures, shape.side, self.device)
        # As it was trained; single precision takes half as long again, and moves a box by a tenth of a pixel.
        with torch.autocast(self.device.type, torch.bfloat16):
            maps: Maps = self.network(squares)
            boxes, heat = best_boxes(self.network, maps, max(CANDIDATES, 2 * self.selection.least))
            found = self.describe_candidates(maps, boxes, heat)
        seen = zip(pictures, shares, maps.whole, *(tensor.float() for tensor in found), strict=True)
        return [self._one(*one) for one in seen]

    def describe_candidates(self, maps: Maps, boxes: Tensor, heat: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Boxes, scores, class probabilities and features of every candidate, those of a picture in a row."""
        boxes = self.network.refine(boxes, self.network.describe(maps, boxes)).clamp(0, 1)
        features = self.network.describe(maps, boxes)
        classes = self.network.region_heads["kind"](features).softmax(2)
        # Two opinions: that a centre is there, and that the box shows one kind.
        scores = (heat * classes[..., 1:].amax(2)).sqrt()
        return boxes, scores, classes, features

    def _one(
        self,
        picture: Picture,
        share: Float[Tensor, "2"],
        whole: Float[Tensor, "F"],
        boxes: Float[Tensor, "K 4"],
        scores: Float[Tensor, "K"],
        classes: Float[Tensor, "K C"],
        features: Float[Tensor, "K F"],
    ) -> Regions:
        rows = self.selection.choose(boxes, scores, classes[:, 1:].argmax(1))
        return Regions(
            boxes=to_picture_fractions(boxes[rows], share).cpu(),
            scores=scores[rows].cpu(),
            size=(picture.shape[2], picture.shape[1]),
            classes=classes[rows].cpu(),
            features=features[rows].cpu(),
            whole=whole.cpu(),
        )

    def save(self, folder: Path) -> None:
        described = {"kind": KIND, "shape": self.network.shape.to_json(), "selection": self.selection.to_json()}
        write_detector(folder, described, self.network)

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> StorybookDetector:
        network = restored(SmallDetector(DetectorConfig.from_json(described["shape"])), folder, described)
        return cls(network, Selection.from_json(described["selection"]))
