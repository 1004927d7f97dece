"""What all backbones have in common: how they read a picture, and what is written down of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import isqrt
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torchvision.transforms.functional import normalize

from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.vision.detectors.weights import fill

# ImageNet's; every backbone of torchvision and most of timm's were trained with them.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 224
MOST_SIDE = 4096  # pixels
Three = tuple[float, float, float]


@dataclass(frozen=True)
class Reading:
    """How pictures come to a backbone: squares of this side, each colour less its mean, over its deviation."""

    side: int = SIDE
    mean: Three = MEAN
    deviation: Three = DEVIATION


@dataclass(frozen=True)
class Opened:
    """A network as its library hands it over. `config`: what besides its name says how to build it again."""

    trunk: nn.Module  # pixels (B, 3, side, side) to a map (B, F, h, w)
    reading: Reading
    config: Mapping[str, Any] = field(default_factory=dict)


class Backbone(nn.Module):
    """A network up to its last map of features."""

    def __init__(self, name: str, opened: Opened) -> None:
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
        return cls(name, _opened(name, side, weights, pretrained))

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
    def from_described(cls, described: Mapping[str, Any], weights: Mapping[str, Tensor], source: str) -> Backbone:
        """Raises KeyError, TypeError or ValueError for what is no description, CheckpointError for other weights."""
        name, config, side = described["backbone"], described["config"], int(described["side"])
        mean, deviation = (cast(Three, tuple(map(float, described[key]))) for key in ("mean", "deviation"))
        built = cls(name, Opened(_built(name, side, config), Reading(side, mean, deviation), config))
        return fill(built, weights, source)


def _opened(name: str, side: int | None, weights: Path | None, pretrained: bool) -> Opened:
    if weights is not None and not weights.exists():
        raise CheckpointError(f"no weights at {weights}; wanted those of {name}: check --weights")
    library, _, inner = name.partition("/")
    match library:
        case "timm":
            from diptych.vision.backbones import of_timm

            return of_timm.opened(inner, side, weights, pretrained)
        case "open_clip":
            from diptych.vision.backbones import of_open_clip

            return of_open_clip.opened(inner, side, weights, pretrained)
        case "hf":
            from diptych.vision.backbones import of_transformers

            return of_transformers.opened(inner, side, weights, pretrained)
    from diptych.vision.backbones import of_torchvision

    return of_torchvision.opened(name, side, weights, pretrained)


def _built(name: str, side: int, config: Mapping[str, Any]) -> nn.Module:
    """The same network again, its weights still to be filled in; nothing is downloaded."""
    library, _, inner = name.partition("/")
    match library:
        case "timm":
            from diptych.vision.backbones import of_timm

            return of_timm.opened(inner, side, None, False).trunk
        case "open_clip":
            from diptych.vision.backbones import of_open_clip

            return of_open_clip.built(config, side)
        case "hf":
            from diptych.vision.backbones import of_transformers

            return of_transformers.built(config)
        case "onnx":
            from diptych.vision.backbones import of_onnx

            return of_onnx.built(config)
    from diptych.vision.backbones import of_torchvision

    return of_torchvision.opened(name, side, None, False).trunk


def as_map(found: Float[Tensor, "B N F"], cells: int | None = None) -> Float[Tensor, "B F n n"]:
    """The tokens of a transformer as the square map that they are; class token and registers, which come first, are
    left out. `cells`: how many of the tokens are cells; None: the largest square number."""
    batch, count, width = found.shape
    side = isqrt(count if cells is None or cells > count else cells)
    return found[:, count - side * side :].transpose(1, 2).reshape(batch, width, side, side)


def three(key: str, value: Any) -> Three:
    """A number for each colour, or one for all."""
    values = (value,) * 3 if isinstance(value, int | float) else value
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(isinstance(v, int | float) for v in values):
        raise RecipeError(f"{key}={value!r}; wanted a number for each of three colours, such as [0.5,0.5,0.5]")
    if key == "deviation" and not all(v > 0 for v in values):
        raise RecipeError(f"{key}={value!r}; wanted numbers over 0")
    return cast(Three, tuple(map(float, values)))
