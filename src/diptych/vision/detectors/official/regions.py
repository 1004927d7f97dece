"""The settings, results and pipeline that the official detectors share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from diptych.core.shares import Share
from diptych.runtime.errors import RecipeError


@dataclass(frozen=True, kw_only=True)
class OfficialSettings:
    """Settings that are not in the weights. Sides are pixels; overlaps are IoU."""

    shorter: PositiveInt  # side of the resized image
    longer: PositiveInt  # limit of its other side
    before_nms: PositiveInt  # proposals per map
    after_nms: PositiveInt
    proposal_overlap: Share
    least_side: NonNegativeFloat  # least side of a proposal, in pixels of the original image
    least: NonNegativeInt  # regions
    most: PositiveInt
    confidence: Share  # regions below it are chosen only to make `least`
    # Of chosen regions; several are tried in turn until enough regions are left.
    overlaps: Annotated[tuple[Share, ...], Field(min_length=1)]
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise RecipeError(f"least={self.least} and most={self.most}: expected least <= most")
        if self.shorter > self.longer:
            raise RecipeError(f"shorter={self.shorter}, longer={self.longer}; expected shorter no more than longer")

    def __str__(self) -> str:
        count = f"exactly {self.most}" if self.least == self.most else f"{self.least} to {self.most}"
        confident = f", confidence {self.confidence:g}" if self.confidence else ""
        overlap = f"NMS {' '.join(f'{overlap:g}' for overlap in self.overlaps)}"
        return f"{count} of {self.after_nms} proposals{confident}, {overlap}"


def rois_of(boxes: list[Float[Tensor, "_ 4"]]) -> Float[Tensor, "N 5"]:
    """Join the boxes of all images, each preceded by the index of its image."""
    return torch.cat([torch.cat([some.new_full((len(some), 1), n), some], 1) for n, some in enumerate(boxes)])


@dataclass(frozen=True)
class Proposals:
    """Proposals, best first; boxes in pixels of the resized image."""

    boxes: Float[Tensor, "N 4"]
    scores: Float[Tensor, "N"]


@dataclass(frozen=True)
class RawRegions:
    """The regions of an image, in the order of the published files. Class and attribute 0 mean none."""

    rows: Int[Tensor, "R"]  # indices of the proposals
    boxes: Float[Tensor, "R 4"]  # pixels of the original image
    scores: Float[Tensor, "R"]
    classes: Int[Tensor, "R"]
    probabilities: Float[Tensor, "R C"]  # the background first
    features: Float[Tensor, "R F"]
    attributes: Int[Tensor, "R"] | None = None
    attribute_scores: Float[Tensor, "R"] | None = None
