"""What a box is to a detector: the three conventions of the field, as data.

Boxes are x1 y1 x2 y2 in pixels. To Caffe and Detectron x2 is the last pixel that is covered, so a width is x2 - x1 + 1;
they differ in whether a decoded box has its last pixel taken off again. To detectron2 x2 is where the box ends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from diptych.vision.detectors.nms import nms

UNWEIGHTED = (1.0, 1.0, 1.0, 1.0)
LARGEST_CHANGE = math.log(1000 / 16)  # of a side, as a logarithm


@dataclass(frozen=True)
class BoxConvention:
    extent: int  # what x2 - x1 lacks to a width
    end: int  # what is taken off the x2 that is decoded
    edge: int  # the last x of a picture w pixels wide is w - edge
    largest_change: float | None  # the most by which the logarithm of a side may change
    drops_equal: bool  # whether NMS drops a box whose overlap is the threshold itself
    # Anchors with whole sides, by ratio, then size, about the middle of the first cell's pixels; else exact ones, by
    # size, then ratio, about its corner.
    rounded: bool

    def sides(self, boxes: Float[Tensor, "*N 4"]) -> Float[Tensor, "*N 2"]:
        """Width and height."""
        return boxes[..., 2:] - boxes[..., :2] + self.extent

    def decode(
        self,
        boxes: Float[Tensor, "*N 4"],
        deltas: Float[Tensor, "*M 4"],
        weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    ) -> Float[Tensor, "*M 4"]:
        """Boxes moved by (dx, dy, dw, dh), each divided by its weight; not clipped."""
        sides = self.sides(boxes)
        centres = boxes[..., :2] + 0.5 * sides
        deltas = deltas / deltas.new_tensor(weights)
        change = deltas[..., 2:]
        if self.largest_change is not None:
            change = change.clamp(max=self.largest_change)
        middle, half = deltas[..., :2] * sides + centres, 0.5 * change.exp() * sides
        return torch.cat([middle - half, middle + half - self.end], -1)

    def clip(self, boxes: Float[Tensor, "*N 4"], height: int, width: int) -> Float[Tensor, "*N 4"]:
        most = boxes.new_tensor([width, height, width, height]) - self.edge
        return torch.minimum(boxes.clamp(min=0), most)

    def wide_enough(self, boxes: Float[Tensor, "N 4"], least: float) -> Bool[Tensor, "N"]:
        """Both sides at least so many pixels; with 0, any extent at all."""
        sides = self.sides(boxes)
        return ((sides >= least) if least else (sides > 0)).all(-1)

    def nms(self, boxes: Float[Tensor, "N 4"], scores: Float[Tensor, "N"], overlap: float) -> Int[Tensor, "K"]:
        """The rows that no better box covers by more than `overlap` (IoU), best first."""
        threshold = overlap
        if self.extent:  # the references of these compare in float32, torchvision's in float64
            nearest = np.float32(overlap)
            threshold = float(np.nextafter(nearest, np.float32(0)) if self.drops_equal else nearest)
        whole = boxes + boxes.new_tensor([0, 0, self.extent, self.extent])
        kept: Tensor = nms(whole, scores, threshold)
        return kept

    def anchors(self, stride: int, sizes: Sequence[float], ratios: Sequence[float]) -> Float[Tensor, "A 4"]:
        """Of the first cell; `ratios` are height / width, `sizes` the roots of areas in pixels."""
        made: list[Any] = []
        if self.rounded:
            centre = (stride - 1) / 2
            for ratio in ratios:
                width = np.round(np.sqrt(stride * stride / ratio))
                height = np.round(width * ratio)
                for size in sizes:
                    half = np.array([width, height]) * (size / stride) / 2 - 0.5
                    made.append(np.concatenate([centre - half, centre + half]))
        else:
            for size in sizes:
                for ratio in ratios:
                    width = np.sqrt(size * size / ratio)
                    half = np.array([width, width * ratio]) / 2
                    made.append(np.concatenate([-half, half]))
        return torch.from_numpy(np.stack(made)).float()


def shifted(anchors: Float[Tensor, "A 4"], cells: tuple[int, int], stride: int) -> Float[Tensor, "N 4"]:
    """The anchors of all cells of a map (rows and columns), by row, column, anchor."""
    y, x = torch.meshgrid(torch.arange(cells[0]), torch.arange(cells[1]), indexing="ij")
    shifts = torch.stack([x, y, x, y], -1).to(anchors) * stride
    return (shifts.reshape(-1, 1, 4) + anchors).reshape(-1, 4)


def by_anchor(deltas: Float[Tensor, "d h w"]) -> Float[Tensor, "N 4"]:
    """Deltas of a map (four channels an anchor) in the order of `shifted`."""
    return deltas.view(-1, 4, *deltas.shape[1:]).permute(2, 3, 0, 1).reshape(-1, 4)


CAFFE = BoxConvention(extent=1, end=0, edge=1, largest_change=None, drops_equal=False, rounded=True)
DETECTRON = BoxConvention(extent=1, end=1, edge=1, largest_change=LARGEST_CHANGE, drops_equal=True, rounded=True)
DETECTRON2 = BoxConvention(extent=0, end=0, edge=0, largest_change=LARGEST_CHANGE, drops_equal=False, rounded=False)
