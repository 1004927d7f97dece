"""A backbone of any library: how it reads images, and how it is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.vision.backbones.opened import OpenedNetwork, Three
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.letterbox import letterbox
from diptych.vision.detectors.weights import WEIGHTS, fill, read_detector_weights

MOST_SIDE = 4096  # pixels
# Modules by the prefix of a backbone's name; without a known prefix it is torchvision's. Each module has
# `opened(name, side, weights, pretrained)`, and `built(described)`, which downloads nothing and fills in no weights.
BACKBONES = {"timm/": "timm", "open_clip/": "open_clip", "hf/": "transformers", "onnx/": "onnx"}


class Backbone(nn.Module):
    """A network up to its last map of features."""

    def __init__(self, name: str, opened: OpenedNetwork) -> None:
        super().__init__()
        self.name, self.opened, self.side = name, opened, opened.side
        self.trunk = opened.trunk.eval()

    @classmethod
    def of(cls, name: str, side: int | None = None, weights: Path | None = None, pretrained: bool = True) -> Backbone:
        """Open a network with its library's weights, those of a file, or (`pretrained=False`) random ones.

        `side`: side of the squares in pixels; None: as in training. Raises RecipeError for an unknown name,
        CheckpointError for weights that cannot be read or belong to another network.
        """
        if side is not None and not 8 <= side <= MOST_SIDE:
            raise RecipeError(f"side={side}; expected 8 to {MOST_SIDE} pixels")
        if weights is not None and not weights.exists():
            raise CheckpointError(f"no weights at {weights}; expected those of {name}: check --weights")
        library, inner = _library(name)
        return cls(name, library.opened(inner, side, weights, pretrained))

    @classmethod
    def from_onnx(
        cls, path: Path, settings: Mapping[str, Any], report: Callable[[str], object] = lambda _: None
    ) -> Backbone:
        """Open an ONNX file; `report` receives a line for each setting inferred from names and shapes."""
        from diptych.vision.backbones import onnx

        backbone = cls(f"onnx/{path.stem}", onnx.read(path, settings, report))
        _ = backbone.map_size  # runs the network once
        return backbone

    @property
    def device(self) -> torch.device:
        return next(chain(self.parameters(), self.buffers())).device

    def forward(self, squares: UInt8[Tensor, "B 3 side side"]) -> Float[Tensor, "B F h w"]:
        """Return the last maps of images (0 to 255)."""
        from torchvision.transforms.functional import normalize  # imported late: it takes 6 seconds

        pixels = normalize(squares.float() / 255, list(self.opened.mean), list(self.opened.deviation))
        return cast(Tensor, self.trunk(pixels))

    @cached_property
    @torch.no_grad()
    def map_size(self) -> tuple[int, int]:
        """Number of channels F of the last map, and its number of cells per side."""
        cells = self(torch.zeros(1, 3, self.side, self.side, dtype=torch.uint8))
        return int(cells.shape[1]), int(min(cells.shape[2:]))

    def maps_of(self, pictures: Sequence[Picture]) -> tuple[Float[Tensor, "B F h w"], Float[Tensor, "B 2"]]:
        """Return the maps of images fitted into squares, and the share (x, y) of its square that each image covers."""
        squares, shares = letterbox(pictures, self.side, self.device)
        return self(squares).float(), shares

    @property
    def width(self) -> int:
        return self.map_size[0]

    @property
    def described(self) -> dict[str, Any]:
        """JSON from which `from_described` builds the same network."""
        normal = {"mean": list(self.opened.mean), "deviation": list(self.opened.deviation)}
        return {"backbone": self.name, "side": self.side, **normal, "config": dict(self.opened.config)}

    @classmethod
    def from_folder(cls, folder: Path, described: Mapping[str, Any]) -> Backbone:
        """Open a detector's folder whose weights are only the backbone's."""
        return cls.from_described(described, read_detector_weights(folder, described), str(folder / WEIGHTS))

    @classmethod
    def from_described(cls, described: Mapping[str, Any], weights: Mapping[str, Tensor], source: str) -> Backbone:
        """Build the network of a description and fill in its weights.

        Raises KeyError, TypeError or ValueError for a bad description, CheckpointError for other weights.
        """
        name = described["backbone"]
        mean, deviation = (cast(Three, tuple(map(float, described[key]))) for key in ("mean", "deviation"))
        trunk = _library(name)[0].built(described)
        opened = OpenedNetwork(trunk, int(described["side"]), mean, deviation, described["config"])
        return fill(cls(name, opened), weights, source)


def _library(name: str) -> tuple[Any, str]:
    """Return the module of a backbone's library, and its name there."""
    prefix = next((prefix for prefix in BACKBONES if name.startswith(prefix)), "")
    module = BACKBONES.get(prefix, "torchvision")
    return import_module(f"diptych.vision.backbones.{module}"), name.removeprefix(prefix)
