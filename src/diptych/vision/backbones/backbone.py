"""A backbone of any library, with the preparation of its input images, and its saving and loading."""

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

MOST_SIDE = 4096  # largest side in pixels of the input of a backbone
FORMAT = torch.channels_last  # oneDNN's convolutions are then about 1.7 times as fast in EfficientNet
# Prefix of a backbone's name -> module; the first that fits. Other names are torchvision's. Each module has
# `opened(name, side, weights, pretrained)`, and `built(described)`, which downloads nothing and loads no weights.
BACKBONES = {"timm/tf_efficientnet_lite": "efficientnet_lite", "timm/": "timm", "open_clip/": "open_clip",
             "hf/": "transformers", "onnx/": "onnx"}  # fmt: skip


class Backbone(nn.Module):
    """A network without the layers after its last feature map."""

    def __init__(self, name: str, opened: OpenedNetwork) -> None:
        super().__init__()
        self.name, self.opened, self.side = name, opened, opened.side
        self.trunk = opened.trunk.eval()

    @classmethod
    def of(cls, name: str, side: int | None = None, weights: Path | None = None, pretrained: bool = True) -> Backbone:
        """Open a network with its library's weights, with the weights of a file, or with random weights
        (`pretrained=False`).

        `side`: side of the square input in pixels; None: the side used in training. Raises RecipeError for an unknown
        name, and CheckpointError for weights that cannot be read or belong to another network.
        """
        if side is not None and not 8 <= side <= MOST_SIDE:
            raise RecipeError(f"side={side}: expected 8 to {MOST_SIDE} pixels")
        if weights is not None and not weights.exists():
            raise CheckpointError(f"there is no file {weights}; pass the weights of {name} with --weights")
        library, inner = _library(name)
        return cls(name, library.opened(inner, side, weights, pretrained))

    @classmethod
    def from_onnx(
        cls, path: Path, settings: Mapping[str, Any], report: Callable[[str], object] = lambda _: None
    ) -> Backbone:
        """Open an ONNX file. `report` is called with a line for each setting inferred from names and shapes."""
        from diptych.vision.backbones import onnx

        backbone = cls(f"onnx/{path.stem}", onnx.read(path, settings, report))
        _ = backbone.map_size  # this runs the network once, so that errors are raised now
        return backbone

    @property
    def traceable(self) -> bool:
        """True if `torch.export` can trace the network. It cannot trace an ONNX file."""
        return not self.name.startswith("onnx/")

    @property
    def device(self) -> torch.device:
        return next(chain(self.parameters(), self.buffers())).device

    def forward(self, squares: UInt8[Tensor, "B 3 side side"]) -> Float[Tensor, "B F h w"]:
        """Return the last feature map of each image. Pixel values are 0 to 255."""
        pixels = squares.float() / 255
        mean, deviation = (pixels.new_tensor(of)[:, None, None] for of in (self.opened.mean, self.opened.deviation))
        pixels = (pixels - mean) / deviation
        return cast(Tensor, self.trunk(pixels.contiguous(memory_format=FORMAT)))

    @cached_property
    @torch.no_grad()
    def map_size(self) -> tuple[int, int]:
        """Return the number of channels of the feature map, and its number of cells per side."""
        cells = self(torch.zeros(1, 3, self.side, self.side, dtype=torch.uint8))
        return int(cells.shape[1]), int(min(cells.shape[2:]))

    def maps_of(self, pictures: Sequence[Picture]) -> tuple[Float[Tensor, "B F h w"], Float[Tensor, "B 2"]]:
        """Resize and pad images to squares, and compute their feature maps.

        Return the maps, and the share (x, y) of the square that each image covers.
        """
        squares, shares = letterbox(pictures, self.side, self.device)
        return self(squares).float(), shares

    @property
    def width(self) -> int:
        return self.map_size[0]

    @property
    def described(self) -> dict[str, Any]:
        """Return the description that `from_described` needs to build the same network. It is stored as JSON."""
        normal = {"mean": list(self.opened.mean), "deviation": list(self.opened.deviation)}
        return {"backbone": self.name, "side": self.side, **normal, "config": dict(self.opened.config)}

    @classmethod
    def from_folder(cls, folder: Path, described: Mapping[str, Any]) -> Backbone:
        """Open a backbone from a detector's folder that has no other weights."""
        return cls.from_described(described, read_detector_weights(folder, described), str(folder / WEIGHTS))

    @classmethod
    def from_described(cls, described: Mapping[str, Any], weights: Mapping[str, Tensor], source: str) -> Backbone:
        """Build the network from its saved description, and load its weights.

        Raises KeyError, TypeError or ValueError for an invalid description, and CheckpointError for weights that do not
        fit.
        """
        name = described["backbone"]
        mean, deviation = (cast(Three, tuple(map(float, described[key]))) for key in ("mean", "deviation"))
        trunk = _library(name)[0].built(described)
        opened = OpenedNetwork(trunk, int(described["side"]), mean, deviation, described["config"])
        return fill(cls(name, opened), weights, source)


def _library(name: str) -> tuple[Any, str]:
    """Return the module for a backbone's library, and the backbone's name in that library."""
    prefix = next((prefix for prefix in BACKBONES if name.startswith(prefix)), "")
    module = BACKBONES.get(prefix, "torchvision")
    return import_module(f"diptych.vision.backbones.{module}"), name.removeprefix(prefix)
