"""The small detector as eyes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import max_pool2d

from diptych.core import FeatureContract, Record, Regions
from diptych.vision.eyes import Picture
from diptych.vision.letterbox import letterbox, to_picture_fractions
from diptych.vision.selection import SELECTIONS, Selection
from diptych.vision.small_detector import DetectorShape, Maps, SmallDetector
from diptych.vision.weights import fill, fingerprint, write_eyes

KIND = "storybook-detector"


class StorybookDetector:
    looks = True

    def __init__(self, network: SmallDetector, selection: Selection = SELECTIONS["storybook"]) -> None:
        self.network, self.selection = network.eval(), selection

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @cached_property
    def contract(self) -> FeatureContract:
        shape = self.network.shape
        return FeatureContract(
            extractor=KIND,
            weights=fingerprint(self.network),
            feature_size=shape.feature_size,
            class_names=shape.kinds,
            selection=str(self.selection),
            whole=True,
        )

    @torch.no_grad()  # not inference mode: its tensors could not be trained on
    def see(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        if not pictures:
            return []
        shape = self.network.shape
        squares, shares = letterbox(pictures, shape.side, self.device)
        maps: Maps = self.network(squares)
        found = [self._choose(*candidates) for candidates in zip(*self._candidates(maps), strict=True)]
        features = self.network.describe(maps, [boxes for boxes, _ in found])
        classes = self.network.region_heads["kind"](features).softmax(1)
        counts = [len(scores) for _, scores in found]
        seen = zip(
            found,
            torch.split(features, counts),
            torch.split(classes, counts),
            pictures,
            shares,
            maps.whole,
            strict=True,
        )
        return [
            Regions(
                boxes=to_picture_fractions(boxes, share).cpu(),
                scores=scores.cpu(),
                size=(picture.shape[2], picture.shape[1]),
                classes=kinds.cpu(),
                features=feature.cpu(),
                whole=whole.cpu(),
            )
            for (boxes, scores), feature, kinds, picture, share, whole in seen
        ]

    def _candidates(self, maps: Maps) -> tuple[Float[Tensor, "B K 4"], Float[Tensor, "B K"], Int[Tensor, "B K"]]:
        """The best peaks of each picture: boxes, scores, kinds."""
        heat = maps.heat.sigmoid()
        # A cell that is not the highest of its 3 x 3 belongs to another's centre; it stays as a very weak candidate,
        # so that a rule of exactly N regions finds N.
        heat = torch.where(max_pool2d(heat, 3, 1, 1) == heat, heat, heat * 1e-3)
        count = min(max(100, 2 * self.selection.most), heat[0].numel())
        scores, where = heat.flatten(1).topk(count)
        cells = heat.shape[2] * heat.shape[3]
        boxes = self.network.boxes(maps.sides).clamp(0, 1)
        rows = torch.arange(len(boxes), device=boxes.device)[:, None]
        return boxes[rows, where % cells], scores, where // cells

    def _choose(self, boxes: Tensor, scores: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.selection.choose(boxes, scores, kinds)
        return boxes[rows], scores[rows]

    def save(self, folder: Path) -> None:
        described = {"kind": KIND, "shape": self.network.shape.to_json(), "selection": self.selection.to_json()}
        write_eyes(folder, described, self.network)

    @classmethod
    def from_folder(cls, described: dict[str, Any], weights: dict[str, Tensor], source: str) -> StorybookDetector:
        network = fill(SmallDetector(DetectorShape.from_json(described["shape"])), weights, source)
        return cls(network, Selection.from_json(described["selection"]))
