"""A small detector that trains on Storybook in a minute or two on two cores. It can be applied to any image.

As in CenterNet and TTFNet, a heat map with stride 4 predicts the centres of objects, and a second map the distances to
their four sides. One heat map is used for all kinds, because it needs far fewer images to learn. The best boxes are
pooled to features. From a feature, linear heads predict kind, colour, size, pose and a correction of the box. So the
features contain what captions describe. The corrected boxes are pooled again.

    picture 160 -> 1/4 -> 1/8 -> 1/16 -> up, up -> map at 1/4 -> heat, sides
                                    |               |
                            whole: place, sky       boxes -> RoI pooling, size -> feature -> kind, colour ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import cast

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import interpolate, pixel_unshuffle, relu, softplus

from diptych.vision.detectors.detector import BACKGROUND
from diptych.vision.detectors.pooling import pool_regions

STRIDE = 4
POOLED = 5  # cells per region and axis
FINE = 32  # channels of the map with stride 2


@dataclass(frozen=True)
class DetectorConfig:
    """Classes and sizes of the detector. `attributes` and `scene`: a name such as `colour` -> its values."""

    kinds: tuple[str, ...]
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # attribute of an object -> its values
    scene: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # attribute of the image -> its values
    side: int = 160  # side of the input square in pixels
    feature_size: int = 128
    widths: tuple[int, int, int] = (48, 96, 160)  # channels of the maps with stride 4, 8 and 16

    @property
    def class_names(self) -> tuple[str, ...]:
        return (BACKGROUND, *self.kinds)


@dataclass(frozen=True)
class Maps:
    """Feature maps of a batch of squares. h and w are a quarter of the square's side."""

    heat: Float[Tensor, "B h w"]  # logits of the probability that a cell has an object's centre
    sides: Float[Tensor, "B 4 h w"]  # distances in pixels from the cell's centre to the box's left, top, right, bottom
    map: Float[Tensor, "B M h w"]  # map from which regions are pooled, in the precision of the convolutions
    fine: Float[Tensor, "B fine h2 w2"]  # like `map`, with twice the resolution, for small objects
    whole: Float[Tensor, "B F"]


class SmallDetector(nn.Module):
    """The network: it computes maps of images and features of boxes, with linear heads on both."""

    def __init__(self, shape: DetectorConfig) -> None:
        super().__init__()
        self.shape = shape
        quarter, eighth, sixteenth = shape.widths
        pooled = quarter + quarter // 3  # channels of the map from which regions are pooled
        # 2 x 2 pixels become 12 channels, because convolutions with 3 channels are very slow in bfloat16.
        self.fine = _conv(12, FINE)
        self.stem = _conv(FINE, quarter, stride=2)
        self.quarter = Residual(quarter)
        self.eighth = nn.Sequential(_conv(quarter, eighth, stride=2), Residual(eighth))
        self.sixteenth = nn.Sequential(_conv(eighth, sixteenth, stride=2), Residual(sixteenth))
        self.down_to_eighth = _conv(sixteenth, eighth, kernel=1)
        self.mix_eighth = _conv(eighth, eighth)
        self.down_to_quarter = _conv(eighth, quarter, kernel=1)
        self.mix_quarter = _conv(quarter, pooled)
        self.look_closer = _conv(pooled, quarter)
        self.heat = nn.Conv2d(quarter, 1, 1)
        self.sides = nn.Conv2d(quarter, 4, 1)
        self.whole = nn.Sequential(nn.Linear(2 * sixteenth, shape.feature_size), nn.ReLU())
        sizes = (pooled + FINE) * POOLED**2 + 4, 256, shape.feature_size
        layers = [(nn.Linear(into, out), nn.LayerNorm(out), nn.ReLU()) for into, out in pairwise(sizes)]
        self.describe_region = nn.Sequential(*chain.from_iterable(layers))
        self.region_heads = _heads(shape.feature_size, {"kind": shape.class_names, **shape.attributes})
        self.moves = nn.Linear(shape.feature_size, 4)
        self.scene_heads = _heads(shape.feature_size, shape.scene)
        # The initial probability of a centre is 0.01. Otherwise the network would first have to learn that centres are
        # rare.
        nn.init.constant_(cast(Tensor, self.heat.bias), -4.6)
        # At the start of training, the correction of boxes is 0.
        nn.init.zeros_(self.moves.weight)
        nn.init.zeros_(self.moves.bias)

    def forward(self, squares: UInt8[Tensor, "B 3 H W"]) -> Maps:
        """Return the feature maps of square images. Pixel values are 0 to 255."""
        blocks = pixel_unshuffle(squares, 2).contiguous(memory_format=torch.channels_last)
        fine = self.fine(blocks.float().div(64).sub(2))
        quarter = self.quarter(self.stem(fine))
        eighth = self.eighth(quarter)
        sixteenth = self.sixteenth(eighth)
        eighth = self.mix_eighth(eighth + _twice(self.down_to_eighth(sixteenth)))
        pooled_from = self.mix_quarter(quarter + _twice(self.down_to_quarter(eighth)))
        pooled = torch.cat([sixteenth.mean((2, 3)), sixteenth.amax((2, 3))], 1)
        closer = self.look_closer(pooled_from)
        heat, sides = self.heat(closer)[:, 0].float(), softplus(self.sides(closer).float()) * 16
        return Maps(heat, sides, map=pooled_from, fine=fine, whole=self.whole(pooled).float())

    def describe(self, maps: Maps, boxes: Float[Tensor, "B K 4"]) -> Float[Tensor, "B K F"]:
        """Return the features of boxes. Boxes are fractions of the square."""
        pooled = [pool_regions(one, boxes, POOLED).flatten(2) for one in (maps.map, maps.fine)]
        # Pooling loses the size of a box, so the size is added to the feature. The position is not added, because
        # models get it with the box.
        sizes = boxes[..., 2:] - boxes[..., :2]
        shape = torch.cat([sizes * 4 - 1, sizes.clamp(min=1e-3).log() + 1.5], 2)
        return cast(Tensor, self.describe_region(torch.cat([*pooled, shape.to(pooled[0].dtype)], 2))).float()

    def refine(self, boxes: Float[Tensor, "*N 4"], features: Float[Tensor, "*N F"]) -> Float[Tensor, "*N 4"]:
        """Correct boxes with a prediction from their features, which moves each side in units of width and height."""
        sizes = boxes[..., 2:] - boxes[..., :2]
        moves: Tensor = self.moves(features).float().clamp(-0.5, 0.5)
        return boxes + moves * torch.cat([sizes, sizes], -1)

    def boxes(self, sides: Float[Tensor, "B 4 h w"]) -> Float[Tensor, "B cells 4"]:
        """Return the box that each cell predicts, as fractions of the square. Cells are in row-major order."""
        height, width = sides.shape[2:]
        down = (torch.arange(height, device=sides.device) + 0.5) * STRIDE
        across = (torch.arange(width, device=sides.device) + 0.5) * STRIDE
        left, top, right, bottom = sides.unbind(1)
        corners = (across - left, down[:, None] - top, across + right, down[:, None] + bottom)
        return torch.stack([corner.flatten(1) for corner in corners], 2) / self.shape.side


class Residual(nn.Module):
    """A residual block: two 3 x 3 convolutions with batch norm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _conv(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Float[Tensor, "B M h w"]) -> Float[Tensor, "B M h w"]:
        return relu(x + self.second(self.first(x)))


def _conv(inward: int, outward: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inward, outward, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outward), nn.ReLU(inplace=True))


def _heads(width: int, words: Mapping[str, tuple[str, ...]]) -> nn.ModuleDict:
    return nn.ModuleDict({name: nn.Linear(width, len(values)) for name, values in words.items()})


def _twice(x: Float[Tensor, "B M h w"]) -> Float[Tensor, "B M hh ww"]:
    return interpolate(x, scale_factor=2.0, mode="nearest")
