"""The three conventions for the pixels of a box.

Boxes are x1 y1 x2 y2 in pixels. In Caffe and Detectron x2 is the last covered pixel, so a width is x2 - x1 + 1. They
differ in whether 1 is subtracted from the x2 of a decoded box. In detectron2 x2 is where the box ends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from diptych.vision.detectors.nms import nms

UNWEIGHTED = (1.0, 1.0, 1.0, 1.0)
LARGEST_CHANGE = math.log(1000 / 16)  # logarithm of the largest factor of a side


@dataclass(frozen=True)
class BoxConvention:
    """How a detector decodes, clips and compares boxes."""

    extent: int  # a width is x2 - x1 + extent
    end: int  # subtracted from a decoded x2
    edge: int  # the last x of an image w pixels wide is w - edge
    largest_change: float | None  # limit of the logarithm of a side's factor
    drops_equal: bool  # NMS also drops a box whose overlap equals the threshold
    # True: the sides of anchors are rounded, their centre is that of the cell; ordered by ratio, then size. False: the
    # sides are exact, the centre is the cell's corner; ordered by size, then ratio.
    rounded: bool

    def sides(self, boxes: Float[Tensor, "*N 4"]) -> Float[Tensor, "*N 2"]:
        """Return width and height in pixels."""
        return boxes[..., 2:] - boxes[..., :2] + self.extent

    def decode(
        self, boxes: Float[Tensor, "*N 4"], deltas: Float[Tensor, "*M 4"], weights: Sequence[float] = UNWEIGHTED
    ) -> Float[Tensor, "*M 4"]:
        """Move boxes by (dx, dy, dw, dh), each divided by its weight, without clipping."""
        sides = self.sides(boxes)
        centres = boxes[..., :2] + 0.5 * sides
        deltas = deltas / deltas.new_tensor(weights)
        change = deltas[..., 2:]
        if self.largest_change is not None:
            change = change.clamp(max=self.largest_change)
        middle, half = deltas[..., :2] * sides + centres, 0.5 * change.exp() * sides
        return torch.cat([middle - half, middle + half - self.end], -1)

    def clip(self, boxes: Float[Tensor, "*N 4"], height: int, width: int) -> Float[Tensor, "*N 4"]:
        """Clip boxes to an image."""
        most = boxes.new_tensor([width, height, width, height]) - self.edge
        return torch.minimum(boxes.clamp(min=0), most)

    def wide_enough(self, boxes: Float[Tensor, "N 4"], least: float) -> Bool[Tensor, "N"]:
        """Return a mask of boxes with both sides of at least `least` pixels (above 0 if `least` is 0)."""
        sides = self.sides(boxes)
        return ((sides >= least) if least else (sides > 0)).all(-1)

    def nms(self, boxes: Float[Tensor, "N 4"], scores: Float[Tensor, "N"], overlap: float) -> Int[Tensor, "K"]:
        """Return the rows that no better box overlaps with an IoU over `overlap`, best first."""
        threshold = overlap
        if self.extent:  # the reference code of these compares in float32, torchvision in float64
            nearest = np.float32(overlap)
            threshold = float(np.nextafter(nearest, np.float32(0)) if self.drops_equal else nearest)
        whole = boxes + boxes.new_tensor([0, 0, self.extent, self.extent])
        return nms(whole, scores, threshold)

    def anchors(self, stride: int, sizes: Sequence[float], ratios: Sequence[float]) -> Float[Tensor, "A 4"]:
        """Return the anchors of the first cell. `ratios` are height / width, `sizes` roots of areas in pixels."""
        made, centre = [], (stride - 1) / 2 if self.rounded else 0.0
        by_size = [(ratio, size) for size in sizes for ratio in ratios]
        for ratio, size in product(ratios, sizes) if self.rounded else by_size:
            if self.rounded:
                width = np.round(np.sqrt(stride * stride / ratio))
                half = np.array([width, np.round(width * ratio)]) * (size / stride) / 2 - 0.5
            else:
                width = np.sqrt(size * size / ratio)
                half = np.array([width, width * ratio]) / 2
            made.append(np.concatenate([centre - half, centre + half]))
        return torch.from_numpy(np.stack(made)).float()


def shifted(anchors: Float[Tensor, "A 4"], cells: tuple[int, int], stride: int) -> Float[Tensor, "N 4"]:
    """Return the anchors of all cells of a map (rows, columns), ordered by row, column, anchor."""
    y, x = torch.meshgrid(torch.arange(cells[0]), torch.arange(cells[1]), indexing="ij")
    shifts = torch.stack([x, y, x, y], -1).to(anchors) * stride
    return (shifts.reshape(-1, 1, 4) + anchors).reshape(-1, 4)


def by_anchor(deltas: Float[Tensor, "d h w"]) -> Float[Tensor, "N 4"]:
    """Reorder the deltas of a map (four channels per anchor) like the boxes of `shifted`."""
    return deltas.view(-1, 4, *deltas.shape[1:]).permute(2, 3, 0, 1).reshape(-1, 4)


CAFFE = BoxConvention(extent=1, end=0, edge=1, largest_change=None, drops_equal=False, rounded=True)
DETECTRON = BoxConvention(extent=1, end=1, edge=1, largest_change=LARGEST_CHANGE, drops_equal=True, rounded=True)
DETECTRON2 = BoxConvention(extent=0, end=0, edge=0, largest_change=LARGEST_CHANGE, drops_equal=False, rounded=False)
