"""Grid features: the regions are the cells of a backbone's last feature map. No trained detector is needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from diptych.core import FeatureContract, Record, Regions
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.vision.backbones.backbone import Backbone
from diptych.vision.backbones.opened import refuse_unknown
from diptych.vision.detectors.detector import NetworkDetector, Picture, TracedDetector, regions_of
from diptych.vision.detectors.load import load_detector
from diptych.vision.detectors.request import DetectorRequest
from diptych.vision.detectors.weights import DETECTOR, write_detector

KIND, ONNX = "grid", "onnx:"
CELLS = 7  # cells per side of the grid; fewer if the feature map is smaller


class Grid(NetworkDetector[Backbone]):
    """A detector that divides a square into `cells` x `cells` regions.

    The image is resized to fit into the square. Cells outside the image are left out.
    """

    def __init__(self, backbone: Backbone, cells: int | None = None) -> None:
        self.network = self.backbone = backbone.eval()
        most = backbone.map_size[1]
        self.cells = min(CELLS, most) if cells is None else cells
        if not 1 <= self.cells <= most:
            raise RecipeError(
                f"cells={cells}, but the feature map of {backbone.name} is {most} x {most}; expected 1 to {most}"
            )

    @cached_property
    def contract(self) -> FeatureContract:
        return FeatureContract(
            extractor=f"grid:{self.backbone.name} at {self.backbone.side} pixels",
            weights=self.fingerprint,
            feature_size=self.backbone.width,
            selection=f"all of {self.cells} x {self.cells} cells",
            whole=True,
        )

    def regions_in(self, pictures: Sequence[Picture], records: Sequence[Record]) -> list[Regions]:
        maps, shares = self.backbone.maps_of(pictures)
        cells = adaptive_avg_pool2d(maps, self.cells)
        return [self._one(*of_one) for of_one in zip(pictures, cells, shares, strict=True)]

    def _one(self, picture: Picture, cells: Float[Tensor, "F n n"], share: Float[Tensor, "2"]) -> Regions:
        columns, rows = (share * self.cells).ceil().int().tolist()
        left, top = torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy")
        corners = torch.stack([left, top, left + 1, top + 1], -1).reshape(-1, 4) / self.cells
        boxes = (corners / share.cpu().repeat(2)).clamp(0, 1)
        features = cells[:, :rows, :columns].flatten(1).T.cpu()
        return regions_of(picture, boxes, torch.ones(len(boxes)), features=features, whole=features.mean(0))

    def traced(self, reduced: bool) -> TracedDetector | None:
        if not self.backbone.traceable:
            return None
        side = self.backbone.side
        return TracedDetector(DetectGrid(self), side, ("cells",), {"side": side, "cells": self.cells})

    def save(self, folder: Path) -> None:
        write_detector(folder, {"kind": KIND, **self.backbone.described, "cells": self.cells}, self.backbone)

    @classmethod
    def from_request(cls, request: DetectorRequest) -> Grid:
        """Open `grid:BACKBONE` with the settings `side` and `cells`. Raises RecipeError for other settings."""
        refuse_unknown(request.settings, ("side", "cells"), "a grid")
        for key, value in request.settings.items():
            if type(value) is not int:
                raise RecipeError(f"--set {key}={value}: expected a whole number")
        backbone = Backbone.of(request.name.removeprefix("grid:"), request.settings.get("side"), request.weights)
        return cls(backbone, request.settings.get("cells"))

    @classmethod
    def from_folder(cls, folder: Path, described: dict[str, Any]) -> Grid:
        return cls(Backbone.from_folder(folder, described), described["cells"])


class DetectGrid(nn.Module):
    """The features of a grid of cells over a square.

    If the image is not square, the runner drops the cells outside it.
    """

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.backbone, self.cells = grid.backbone, grid.cells

    def forward(self, squares: Tensor) -> tuple[Tensor]:
        return (adaptive_avg_pool2d(self.backbone(squares), self.cells).float().flatten(2).transpose(1, 2),)


def backbone_of(name: str, option: str) -> Backbone:
    """Open the backbone `name`: a library's, such as `timm/NAME`, `onnx:FILE`, or the folder of a grid detector.

    `option`: the command-line option, for errors.
    """
    if name.startswith(ONNX):
        return Backbone.from_onnx(Path(name.removeprefix(ONNX)), {})
    if not (Path(name) / DETECTOR).is_file():
        try:
            return Backbone.of(name)
        except CheckpointError as error:
            remedy = f"diptych import detector grid:{name} --weights FILE --out FOLDER; then pass {option} FOLDER"
            raise CheckpointError(f"{error}. With {option}, first run: {remedy}") from error
    grid = load_detector(Path(name))
    if not isinstance(grid, Grid):
        held = grid.contract.extractor
        raise RecipeError(f"{option} {name} holds the detector {held}; pass a backbone or a grid detector's folder")
    return grid.backbone
