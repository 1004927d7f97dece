"""A plain grid: regions are the cells of a backbone's last map, and no detector was trained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from diptych.core import FeatureContract, Record, Regions
from diptych.runtime.errors import RecipeError
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.letterbox import letterbox
from diptych.vision.detectors.weights import fingerprint, write_detector

KIND = "grid"
CELLS = 7  # on a side, where the map has as many


class Grid:
    """`cells` by `cells` regions of equal size; those outside a picture that is not square are left out."""

    needs_pictures = True

    def __init__(self, backbone: Backbone, cells: int | None = None) -> None:
        self.backbone = backbone.eval()
        most = backbone.map_size[1]
        self.cells = min(CELLS, most) if cells is None else cells
        if not 1 <= self.cells <= most:
            raise RecipeError(
                f"cells={cells}, and the last map of {backbone.name} has {most} on a side; wanted 1 to {most}"
            )

    @property
    def network(self) -> Backbone:
        return self.backbone

    @cached_property
    def contract(self) -> FeatureContract:
        return FeatureContract(
            extractor=f"grid:{self.backbone.name} at {self.backbone.side} pixels",
            weights=fingerprint(self.backbone),
            feature_size=self.backbone.width,
            selection=f"all of {self.cells} x {self.cells} cells",
            whole=True,
        )

    @torch.no_grad()
    def detect(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        if not pictures:
            return []
        squares, shares = letterbox(pictures, self.backbone.side, self.backbone.device)
        maps = adaptive_avg_pool2d(self.backbone(squares), self.cells).float()
        return [self._one(*one) for one in zip(pictures, maps, shares, strict=True)]

    def _one(self, picture: Picture, cells: Float[Tensor, "F n n"], share: Float[Tensor, "2"]) -> Regions:
        columns, rows = (share * self.cells).ceil().int().tolist()
        left, top = torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy")
        corners = torch.stack([left, top, left + 1, top + 1], -1).reshape(-1, 4) / self.cells
        boxes = (corners / share.cpu().repeat(2)).clamp(0, 1)
        features = cells[:, :rows, :columns].flatten(1).T.cpu()
        return Regions(
            boxes=boxes,
            scores=torch.ones(len(boxes)),
            size=(picture.shape[2], picture.shape[1]),
            features=features,
            whole=features.mean(0),
        )

    def save(self, folder: Path) -> None:
        write_detector(folder, {"kind": KIND, **self.backbone.described, "cells": self.cells}, self.backbone)

    @classmethod
    def from_folder(cls, described: dict[str, Any], weights: dict[str, Tensor], source: str) -> Grid:
        return cls(Backbone.from_described(described, weights, source), described["cells"])
