"""What a detector saw in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def iou(one: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2); 0 where neither has an area."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - shared
    return shared / both if both > 0 else 0.0


@dataclass(frozen=True)
class Regions:
    """The regions of one picture, best first (those of the official detectors as the published files have them). Either
    `features` or `pixels` is what a model reads.

    `chosen` and `hidden` are two masks, because BERT's 80/10/10 and the papers' 90/10 predict some
    regions that stay visible.
    """

    boxes: Float[Tensor, "R 4"]  # corners, fractions of the picture
    scores: Float[Tensor, "R"]  # the detector's confidence, 0 to 1
    size: tuple[int, int]  # width and height of the picture in pixels
    classes: Float[Tensor, "R C"] | None = None  # the detector's probabilities
    features: Float[Tensor, "R F"] | None = None
    pixels: Float[Tensor, "3 H W"] | None = None
    whole: Float[Tensor, "whole_size"] | None = None  # the picture's own feature; of size F from most detectors
    masks: Bool[Tensor, "R m m"] | None = None  # which of the cells of each box show the thing; see `Object.mask`
    chosen: Bool[Tensor, "R"] | None = None  # predicted by an objective
    hidden: Bool[Tensor, "R"] | None = None  # not seen by the model

    def __len__(self) -> int:
        return self.boxes.shape[0]

    def hide(self, hidden: Bool[Tensor, "R"], chosen: Bool[Tensor, "R"] | None = None) -> Regions:
        """The same regions with some hidden: their pixels blanked where there are pixels, else flagged.
        Their masks are all true, or the outline would tell what is hidden.

        Box ends are rounded outward, or a line of pixels would leak.
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
        """Only these regions, in this order (`rows`: indices or a mask)."""
        per_region = ("boxes", "scores", "classes", "features", "masks", "chosen", "hidden")
        kept = {name: value[rows] for name in per_region if (value := getattr(self, name)) is not None}
        return replace(self, **kept)

    def mirrored(self) -> Regions:
        """With left and right swapped. Features stay as they are: they are not extracted again."""
        x1, y1, x2, y2 = self.boxes.unbind(-1)
        turned = {name: value.flip(-1) for name in ("masks", "pixels") if (value := getattr(self, name)) is not None}
        return replace(self, boxes=torch.stack([1 - x2, y1, 1 - x1, y2], -1), **turned)

    def widened(self) -> Regions:
        """Numbers of half precision, as stores keep them, in single."""
        halves: dict[str, Any] = {
            name: value.float() for name, value in self.tensors().items() if value.dtype == torch.float16
        }
        return replace(self, **halves) if halves else self

    def overlaps(self, box: Sequence[float]) -> Float[Tensor, "R"]:
        """IoU of each region with a box (corners, fractions of the picture)."""
        other = torch.tensor(box, dtype=self.boxes.dtype)
        starts, ends = torch.maximum(self.boxes[:, :2], other[:2]), torch.minimum(self.boxes[:, 2:], other[2:])
        shared = (ends - starts).clamp(min=0).prod(-1)
        areas = (self.boxes[:, 2:] - self.boxes[:, :2]).prod(-1) + (other[2:] - other[:2]).prod()
        return shared / (areas - shared).clamp(min=torch.finfo(shared.dtype).tiny)

    def first(self, count: int) -> Regions:
        """The best `count`; regions are kept best first."""
        return self if len(self) <= count else self.take(torch.arange(count))

    def tensors(self) -> dict[str, Tensor]:
        """What is there, by field name."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
