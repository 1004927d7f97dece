"""What all backbones have in common: how they read a picture, and what is written down of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torchvision.transforms.functional import normalize

from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.vision.backbones.opened import OpenedNetwork, Reading, Three
from diptych.vision.detectors.weights import WEIGHTS, fill, read_weights

MOST_SIDE = 4096  # pixels
# Modules by what a backbone's name begins with. Each has `opened(name, side, weights, pretrained)` and, for the same
# network with its weights still to be filled in, `built(described)`, which downloads nothing.
BACKBONES = {
    f"{library}/": f"diptych.vision.backbones.{module}"
    for library, module in (("timm", "timm"), ("open_clip", "open_clip"), ("hf", "transformers"), ("onnx", "onnx"))
}
OTHERS = "diptych.vision.backbones.torchvision"


class Backbone(nn.Module):
    """A network up to its last map of features."""

    def __init__(self, name: str, opened: OpenedNetwork) -> None:
        super().__init__()
        self.name, self.reading, self.config = name, opened.reading, opened.config
        self.trunk = opened.trunk.eval()

    @classmethod
    def of(cls, name: str, side: int | None = None, weights: Path | None = None, pretrained: bool = True) -> Backbone:
        """With the weights that its library offers under this name, those of a file, or (not `pretrained`) random
        ones. `side`: of the squares in pixels; None: what the network was trained with.

        Raises RecipeError for an unknown name, CheckpointError where the weights cannot be had or do not fit.
        """
        if side is not None and not 8 <= side <= MOST_SIDE:
            raise RecipeError(f"side={side}; wanted 8 to {MOST_SIDE} pixels")
        if weights is not None and not weights.exists():
            raise CheckpointError(f"no weights at {weights}; wanted those of {name}: check --weights")
        library, inner = _library(name)
        return cls(name, library.opened(inner, side, weights, pretrained))

    @classmethod
    def from_onnx(
        cls, path: Path, settings: Mapping[str, Any], tell: Callable[[str], object] = lambda _: None
    ) -> Backbone:
        """With the weights of an ONNX file; `tell` hears each setting that its names and shapes decided."""
        from diptych.vision.backbones import onnx

        backbone = cls(f"onnx/{path.stem}", onnx.read(path, settings, tell))
        _ = backbone.map_size  # whether it runs
        return backbone

    @property
    def side(self) -> int:
        return self.reading.side

    @property
    def device(self) -> torch.device:
        return next(chain(self.parameters(), self.buffers())).device

    def forward(self, squares: UInt8[Tensor, "B 3 side side"]) -> Float[Tensor, "B F h w"]:
        pixels = normalize(squares.float() / 255, list(self.reading.mean), list(self.reading.deviation))
        return cast(Tensor, self.trunk(pixels))

    @cached_property
    @torch.no_grad()
    def map_size(self) -> tuple[int, int]:
        """F, the channels of the last map, and how many cells it has on a side."""
        found = self(torch.zeros(1, 3, self.side, self.side, dtype=torch.uint8))
        return int(found.shape[1]), int(min(found.shape[2:]))

    @property
    def width(self) -> int:
        return self.map_size[0]

    @property
    def described(self) -> dict[str, Any]:
        """What `from_described` needs besides the weights, as JSON."""
        reading = {"side": self.side, "mean": list(self.reading.mean), "deviation": list(self.reading.deviation)}
        return {"backbone": self.name, **reading, "config": dict(self.config)}

    @classmethod
    def from_folder(cls, folder: Path, described: Mapping[str, Any]) -> Backbone:
        """From a detector's folder, whose weights are the backbone's alone."""
        return cls.from_described(described, read_weights(folder, described), str(folder / WEIGHTS))

    @classmethod
    def from_described(cls, described: Mapping[str, Any], weights: Mapping[str, Tensor], source: str) -> Backbone:
        """Raises KeyError, TypeError or ValueError for what is no description, CheckpointError for other weights."""
        name, config, side = described["backbone"], described["config"], int(described["side"])
        mean, deviation = (cast(Three, tuple(map(float, described[key]))) for key in ("mean", "deviation"))
        built = cls(name, OpenedNetwork(_library(name)[0].built(described), Reading(side, mean, deviation), config))
        return fill(built, weights, source)


def _library(name: str) -> tuple[Any, str]:
    """The module of a backbone's library, and the name that it has there."""
    begins = next((begins for begins in BACKBONES if name.startswith(begins)), "")
    return import_module(BACKBONES.get(begins, OTHERS)), name.removeprefix(begins)
