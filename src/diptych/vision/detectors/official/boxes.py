"""The three conventions for boxes in pixels that the official detectors use.

Boxes are x1 y1 x2 y2 in pixels. In Caffe and Detectron, x2 is the last covered pixel, so the width is x2 - x1 + 1.
Detectron also subtracts 1 from the x2 of a decoded box; Caffe does not. In detectron2, x2 is the right edge, so the
width is x2 - x1.
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
LARGEST_CHANGE = math.log(1000 / 16)  # maximum dw or dh: log of the largest factor by which a side may grow


@dataclass(frozen=True)
class BoxConvention:
    """The convention by which a detector decodes, clips and compares boxes."""

    extent: int  # the width of a box is x2 - x1 + extent
    end: int  # number subtracted from the x2 of a decoded box
    edge: int  # in an image w pixels wide, x is clipped to w - edge
    largest_change: float | None  # maximum dw or dh; None: no limit
    drops_equal: bool  # True: NMS also drops a box whose IoU equals the threshold
    # True: anchors have rounded sides and are centred on the cell; they are ordered by ratio, then size. False: sides
    # are not rounded, and anchors are centred on the cell's corner; they are ordered by size, then ratio.
    rounded: bool

    def sides(self, boxes: Float[Tensor, "*N 4"]) -> Float[Tensor, "*N 2"]:
        """Return the width and height of each box, in pixels."""
        return boxes[..., 2:] - boxes[..., :2] + self.extent

    def decode(
        self, boxes: Float[Tensor, "*N 4"], deltas: Float[Tensor, "*M 4"], weights: Sequence[float] = UNWEIGHTED
    ) -> Float[Tensor, "*M 4"]:
        """Apply deltas (dx, dy, dw, dh), each divided by its weight, to boxes. The result is not clipped."""
        sides = self.sides(boxes)
        centres = boxes[..., :2] + 0.5 * sides
        deltas = deltas / deltas.new_tensor(weights)
        change = deltas[..., 2:]
        if self.largest_change is not None:
            change = change.clamp(max=self.largest_change)
        middle, half = deltas[..., :2] * sides + centres, 0.5 * change.exp() * sides
        return torch.cat([middle - half, middle + half - self.end], -1)

    def clip(self, boxes: Float[Tensor, "*N 4"], height: int, width: int) -> Float[Tensor, "*N 4"]:
        """Clip boxes to an image of `height` x `width` pixels."""
        most = boxes.new_tensor([width, height, width, height]) - self.edge
        return torch.minimum(boxes.clamp(min=0), most)

    def wide_enough(self, boxes: Float[Tensor, "N 4"], least: float) -> Bool[Tensor, "N"]:
        """Return a mask of the boxes whose sides both have at least `least` pixels.

        If `least` is 0, both sides must be above 0.
        """
        sides = self.sides(boxes)
        return ((sides >= least) if least else (sides > 0)).all(-1)

    def nms(self, boxes: Float[Tensor, "N 4"], scores: Float[Tensor, "N"], overlap: float) -> Int[Tensor, "K"]:
        """Return the indices of the boxes that NMS keeps, highest score first. `overlap`: the IoU threshold."""
        threshold = overlap
        if self.extent:  # Caffe and Detectron compare IoUs in float32, torchvision in float64
            nearest = np.float32(overlap)
            threshold = float(np.nextafter(nearest, np.float32(0)) if self.drops_equal else nearest)
        whole = boxes + boxes.new_tensor([0, 0, self.extent, self.extent])
        return nms(whole, scores, threshold)

    def anchors(self, stride: int, sizes: Sequence[float], ratios: Sequence[float]) -> Float[Tensor, "A 4"]:
        """Return the anchors of the first cell. `ratios`: height / width.

        `sizes`: square roots of the areas, in pixels.
        """
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
    """Return the anchors of all cells of a feature map, ordered by row, column, anchor.

    `cells`: numbers of rows and columns.
    """
    y, x = torch.meshgrid(torch.arange(cells[0]), torch.arange(cells[1]), indexing="ij")
    shifts = torch.stack([x, y, x, y], -1).to(anchors) * stride
    return (shifts.reshape(-1, 1, 4) + anchors).reshape(-1, 4)


def by_anchor(deltas: Float[Tensor, "d h w"]) -> Float[Tensor, "N 4"]:
    """Reorder the deltas of a feature map (four channels per anchor) to the order of the anchors from `shifted`."""
    return deltas.view(-1, 4, *deltas.shape[1:]).permute(2, 3, 0, 1).reshape(-1, 4)


CAFFE = BoxConvention(extent=1, end=0, edge=1, largest_change=None, drops_equal=False, rounded=True)
DETECTRON = BoxConvention(extent=1, end=1, edge=1, largest_change=LARGEST_CHANGE, drops_equal=True, rounded=True)
DETECTRON2 = BoxConvention(extent=0, end=0, edge=0, largest_change=LARGEST_CHANGE, drops_equal=False, rounded=False)
