"""The Storybook detector: the small network with the interface of all detectors."""

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
CANDIDATES = 24  # least number of peaks described per picture; more where the selection needs more regions


class StorybookDetector:
    """Detect regions with a `SmallDetector`, and choose among them by `selection`."""

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
            KIND, self._fingerprint, shape.feature_size, shape.class_names, selection=str(self.selection), whole=True
        )

    @torch.no_grad()  # not inference mode, whose tensors cannot be trained on
    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        """Return each picture's regions. `records` are not used."""
        if not pictures:
            return []
        shape = self.network.shape
        squares, shares = letterbox(pictures, shape.side, self.device)
        # The precision of training. float32 takes 1.5 times as long and moves a box by a tenth of a pixel.
        with torch.autocast(self.device.type, torch.bfloat16):
            maps: Maps = self.network(squares)
            boxes, heat = best_boxes(self.network, maps, max(CANDIDATES, 2 * self.selection.least))
            candidates = self.describe_candidates(maps, boxes, heat)
        boxes, scores, classes, features = (tensor.float() for tensor in candidates)
        regions = []
        for at, picture in enumerate(pictures):
            rows = self.selection.choose(boxes[at], scores[at], classes[at, :, 1:].argmax(1))
            chosen, size = to_picture_fractions(boxes[at][rows], shares[at]), (picture.shape[2], picture.shape[1])
            described = {"classes": classes[at][rows].cpu(), "features": features[at][rows].cpu()}
            regions.append(Regions(chosen.cpu(), scores[at][rows].cpu(), size, **described, whole=maps.whole[at].cpu()))
        return regions

    def describe_candidates(
        self, maps: Maps, boxes: Float[Tensor, "B K 4"], heat: Float[Tensor, "B K"]
    ) -> tuple[Float[Tensor, "B K 4"], Float[Tensor, "B K"], Float[Tensor, "B K C"], Float[Tensor, "B K F"]]:
        """Return refined boxes, scores, class probabilities and features of all candidates."""
        boxes = self.network.refine(boxes, self.network.describe(maps, boxes)).clamp(0, 1)
        features = self.network.describe(maps, boxes)
        classes = self.network.region_heads["kind"](features).softmax(2)
        # Geometric mean of two confidences: that a centre is there, and that the box shows one kind.
        scores = (heat * classes[..., 1:].amax(2)).sqrt()
        return boxes, scores, classes, features

    def save(self, folder: Path) -> None:
        """Write the detector's folder."""
        described = {"kind": KIND, "shape": self.network.shape.to_json(), "selection": self.selection.to_json()}
        write_detector(folder, described, self.network)

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> StorybookDetector:
        """Read a folder written by `save`; `described` is the content of its `detector.json`."""
        network = restored(SmallDetector(DetectorConfig.from_json(described["shape"])), folder, described)
        return cls(network, Selection.from_json(described["selection"]))
