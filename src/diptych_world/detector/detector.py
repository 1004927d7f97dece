"""The Storybook detector: a small network, with the interface of all detectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from diptych.core import FeatureContract, Record, Regions
from diptych.runtime.configs import of_json
from diptych.runtime.devices import autocast, choose_precision
from diptych.vision.detectors.detector import NetworkDetector, Picture, TracedDetector, regions_of
from diptych.vision.detectors.letterbox import letterbox, to_picture_fractions
from diptych.vision.detectors.selection import STORYBOOK, Selection
from diptych.vision.detectors.weights import restored, write_detector
from diptych_world.detector.network import DetectorConfig, Maps, SmallDetector
from diptych_world.detector.training import best_boxes

KIND = "storybook-detector"
OUTPUTS = ("found_boxes", "found_scores", "found_classes", "found_features", "whole")  # of `traced`
CANDIDATES = 24  # candidate boxes per picture; more if the selection rule needs more regions


class StorybookDetector(NetworkDetector[SmallDetector]):
    """A detector that finds candidates with a `SmallDetector`, and selects regions with the rule `selection`."""

    def __init__(self, network: SmallDetector, selection: Selection = STORYBOOK) -> None:
        self.network, self.selection = network.eval().to(memory_format=torch.channels_last), selection

    @property
    def contract(self) -> FeatureContract:
        shape = self.network.shape
        return FeatureContract(
            KIND, self.fingerprint, shape.feature_size, shape.class_names, selection=str(self.selection), whole=True
        )

    @property
    def candidates(self) -> int:
        return max(CANDIDATES, 2 * self.selection.least)

    def regions_in(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        shape = self.network.shape
        squares, shares = letterbox(pictures, shape.side, self.device)
        # bf16 takes 70% of fp32's time with AMX, and 6 times as long as fp32 without AMX. Boxes differ by 0.1 pixel.
        with autocast(self.device, choose_precision("auto", self.device)):
            maps: Maps = self.network(squares)
            boxes, heat = best_boxes(self.network, maps, self.candidates)
            described = self.describe_candidates(maps, boxes, heat)
        boxes, scores, classes, features = (tensor.float() for tensor in described)
        regions = []
        for at, picture in enumerate(pictures):
            rows = self.selection.choose(boxes[at], scores[at], classes[at, :, 1:].argmax(1))
            chosen = to_picture_fractions(boxes[at][rows], shares[at])
            more = {"classes": classes[at][rows], "features": features[at][rows], "whole": maps.whole[at]}
            regions.append(regions_of(picture, chosen, scores[at][rows], **more))
        return regions

    def describe_candidates(
        self, maps: Maps, boxes: Float[Tensor, "B K 4"], heat: Float[Tensor, "B K"]
    ) -> tuple[Float[Tensor, "B K 4"], Float[Tensor, "B K"], Float[Tensor, "B K C"], Float[Tensor, "B K F"]]:
        """Return refined boxes, scores, class probabilities and features of candidates.

        `heat`: probability of a centre at each box.
        """
        boxes = self.network.refine(boxes, self.network.describe(maps, boxes)).clamp(0, 1)
        features = self.network.describe(maps, boxes)
        classes = self.network.region_heads["kind"](features).softmax(2)
        # Geometric mean of two probabilities: of a centre at this position, and of the most probable kind.
        scores = (heat * classes[..., 1:].amax(2)).sqrt()
        return boxes, scores, classes, features

    def traced(self, reduced: bool) -> TracedDetector:
        side = self.network.shape.side
        return TracedDetector(Detect(self, reduced), side, OUTPUTS, {"side": side, "selection": asdict(self.selection)})

    def save(self, folder: Path) -> None:
        """Write the detector to a folder."""
        described = {"kind": KIND, "shape": asdict(self.network.shape), "selection": asdict(self.selection)}
        write_detector(folder, described, self.network)

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> StorybookDetector:
        """Open a folder that `save` wrote. `described`: the content of its `detector.json`."""
        network = restored(SmallDetector(of_json(DetectorConfig, described["shape"])), folder, described)
        return cls(network, Selection(**described["selection"]))


class Detect(nn.Module):
    """The detector up to the candidates. The runner then selects the regions.

    `reduced`: True to compute in bfloat16, as `StorybookDetector.detect` does on some processors; False for float32.
    """

    def __init__(self, detector: StorybookDetector, reduced: bool) -> None:
        super().__init__()
        self.network, self.detector, self.reduced = detector.network, detector, reduced

    def forward(self, squares: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.reduced):
            maps = self.network(squares)
            boxes, heat = best_boxes(self.network, maps, self.detector.candidates)
            described = self.detector.describe_candidates(maps, boxes, heat)
        return (*(one.float() for one in described), maps.whole)
