"""The regions that a detector found in an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def shared_and_union(one: Float[Tensor, "*a 4"], other: Float[Tensor, "*b 4"], edge: int = 0) -> tuple[Tensor, Tensor]:
    """Return the areas of the intersections and of the unions of two sets of boxes (x1, y1, x2, y2), with broadcasting.

    `edge` is added to widths and heights. Set it to 1 for boxes in pixels that include their last pixel.
    """
    sides = torch.minimum(one[..., 2:], other[..., 2:]) - torch.maximum(one[..., :2], other[..., :2]) + edge
    shared = sides.clamp(min=0).prod(-1)
    areas = [(boxes[..., 2:] - boxes[..., :2] + edge).prod(-1) for boxes in (one, other)]
    return shared, areas[0] + areas[1] - shared


def iou(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the intersection over union of two boxes (x1, y1, x2, y2), 0 to 1. It is 0 if both areas are 0."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - shared
    return shared / both if both > 0 else 0.0


@dataclass(frozen=True)
class Regions:
    """The regions of an image, most confident first.

    Regions of official detectors keep the order of the published files.

    A model reads either `features` or `pixels`. `chosen` and `hidden` differ because some masking schemes (BERT's
    80/10/10, the papers' 90/10) do not mask all regions that are predicted.
    """

    boxes: Float[Tensor, "R 4"]  # (x1, y1, x2, y2) from 0 to 1
    scores: Float[Tensor, "R"]  # the detector's confidence, 0 to 1
    size: tuple[int, int]  # (width, height) of the image in pixels
    classes: Float[Tensor, "R C"] | None = None  # the detector's class probabilities
    features: Float[Tensor, "R F"] | None = None
    pixels: Float[Tensor, "3 H W"] | None = None
    whole: Float[Tensor, "whole_size"] | None = None  # feature of the whole image; it usually has F values
    masks: Bool[Tensor, "R m m"] | None = None  # mask of the object in its box; see `Object.mask`
    chosen: Bool[Tensor, "R"] | None = None  # True: an objective predicts this region
    hidden: Bool[Tensor, "R"] | None = None  # True: the region is masked in the model's input

    def __len__(self) -> int:
        return self.boxes.shape[0]

    def hide(self, hidden: Bool[Tensor, "R"], chosen: Bool[Tensor, "R"] | None = None) -> Regions:
        """Mark regions as hidden, and the regions `chosen` as targets (default: the hidden ones).

        Pixels of hidden boxes are set to 0.

        All cells of a hidden region's mask are set to True, because an outline would reveal the class. Boxes are
        rounded outward, so that no row of pixels stays visible.
        """
        pixels = self.pixels
        if pixels is not None:
            pixels = pixels.clone()
            height, width = pixels.shape[-2:]
            scale = torch.tensor([width, height, width, height])
            for box in self.boxes[hidden] * scale:
                x1, y1 = box[:2].floor().long().clamp(min=0).tolist()
                x2, y2 = box[2:].ceil().long().tolist()
                pixels[:, y1:y2, x1:x2] = 0
        masks = None if self.masks is None else self.masks | hidden[:, None, None]
        return replace(self, pixels=pixels, masks=masks, hidden=hidden, chosen=hidden if chosen is None else chosen)

    def take(self, rows: Tensor) -> Regions:
        """Select regions. `rows` are indices, or a mask that is True for the selected regions."""
        per_region = ("boxes", "scores", "classes", "features", "masks", "chosen", "hidden")
        kept = {name: value[rows] for name in per_region if (value := getattr(self, name)) is not None}
        return replace(self, **kept)

    def mirrored(self) -> Regions:
        """Mirror boxes, masks and pixels. Features cannot be mirrored and stay the same."""
        x1, y1, x2, y2 = self.boxes.unbind(-1)
        turned = {name: value.flip(-1) for name in ("masks", "pixels") if (value := getattr(self, name)) is not None}
        return replace(self, boxes=torch.stack([1 - x2, y1, 1 - x1, y2], -1), **turned)

    def widened(self) -> Regions:
        """Convert float16 tensors, as stores have them, to float32."""
        halves: dict[str, Any] = {
            name: value.float() for name, value in self.tensors().items() if value.dtype == torch.float16
        }
        return replace(self, **halves) if halves else self

    def blank(self) -> Regions:
        """Return regions without information about the image, except the number of regions.

        Features, classes and pixels are 0, and each box is the whole image.
        """
        values: dict[str, Any] = {name: torch.zeros_like(value) for name, value in self.tensors().items()}
        values["boxes"][:, 2:] = 1
        return replace(self, **values | {"masks": None, "hidden": self.hidden, "chosen": self.chosen})

    def overlaps(self, box: Sequence[float]) -> Float[Tensor, "R"]:
        """Return the IoU of each region with a box (x1, y1, x2, y2 from 0 to 1)."""
        shared, union = shared_and_union(self.boxes, torch.tensor(box, dtype=self.boxes.dtype))
        return shared / union.clamp(min=torch.finfo(shared.dtype).tiny)

    def first(self, count: int) -> Regions:
        """Return the first `count` regions, which are the most confident."""
        return self if len(self) <= count else self.take(torch.arange(count))

    def tensors(self) -> dict[str, Tensor]:
        """Return {field: tensor} of all tensors that are not None."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
