"""What the official detectors have in common: their settings, and what they hand back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from diptych.runtime.errors import RecipeError

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class OfficialSettings:
    """What is not in the weights. Sides are pixels; overlaps are IoU."""

    shorter: int  # side of the picture, as the network sees it
    longer: int  # at most
    before_nms: int  # proposals, of each map
    after_nms: int
    proposal_overlap: float
    least_side: float  # of a proposal, in pixels of the picture
    least: int  # regions
    most: int
    confidence: float  # from which a region is not chosen for the number's sake alone
    overlaps: tuple[float, ...]  # of chosen regions; where several, they are tried until enough regions are left
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most or self.most < 1:
            raise RecipeError(f"a choice of at least {self.least} and at most {self.most} regions cannot be met")
        if not 1 <= self.shorter <= self.longer or min(self.before_nms, self.after_nms) < 1 or self.least_side < 0:
            raise RecipeError(
                f"shorter={self.shorter}, longer={self.longer}, before_nms={self.before_nms}, "
                f"after_nms={self.after_nms}, least_side={self.least_side}: sizes and numbers are positive, and "
                "shorter is no more than longer"
            )
        if wrong := [s for s in (self.proposal_overlap, self.confidence, *self.overlaps) if not 0 <= s <= 1]:
            raise RecipeError(f"proposal_overlap, confidence and overlaps are from 0 to 1, found {wrong[0]}")
        if self.precision not in (known := get_args(Precision)):
            raise RecipeError(f"precision={self.precision!r}; wanted {' or '.join(known)}")
        if not self.overlaps:
            raise RecipeError("overlaps is empty; give the IoU above which a box is dropped, such as [0.3]")

    def __str__(self) -> str:
        count = f"exactly {self.most}" if self.least == self.most else f"{self.least} to {self.most}"
        confident = f", confidence {self.confidence:g}" if self.confidence else ""
        overlap = f"NMS {' '.join(f'{overlap:g}' for overlap in self.overlaps)}"
        return f"{count} of {self.after_nms} proposals{confident}, {overlap}"


def numbered(boxes: list[Float[Tensor, "_ 4"]]) -> Float[Tensor, "N 5"]:
    """All boxes, each after the number of its picture."""
    return torch.cat([torch.cat([some.new_full((len(some), 1), n), some], 1) for n, some in enumerate(boxes)])


@dataclass(frozen=True)
class Proposals:
    """Best first; boxes in pixels of the image that the network saw."""

    boxes: Float[Tensor, "N 4"]
    scores: Float[Tensor, "N"]


@dataclass(frozen=True)
class RawRegions:
    """The regions of a picture, in the order of the published files; class and attribute 0 mean none."""

    rows: Int[Tensor, "R"]  # of the proposals
    boxes: Float[Tensor, "R 4"]  # pixels of the picture
    scores: Float[Tensor, "R"]
    classes: Int[Tensor, "R"]
    probabilities: Float[Tensor, "R C"]  # the background first
    features: Float[Tensor, "R F"]
    attributes: Int[Tensor, "R"] | None = None
    attribute_scores: Float[Tensor, "R"] | None = None
