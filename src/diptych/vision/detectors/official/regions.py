"""Settings, results and the interface of the pipeline, which all official detectors share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from diptych.core.shares import Share
from diptych.runtime.configs import of_json
from diptych.runtime.errors import RecipeError
from diptych.vision.backbones.opened import refuse_unknown

S = TypeVar("S", bound="OfficialSettings")


@dataclass(frozen=True, kw_only=True)
class OfficialSettings:
    """Settings of an official detector that its weights file does not contain.

    Sides are in pixels; overlaps are IoUs.
    """

    shorter: PositiveInt  # shorter side of the resized image in pixels
    longer: PositiveInt  # maximum of the longer side of the resized image in pixels
    before_nms: PositiveInt  # maximum number of proposals per feature map before NMS
    after_nms: PositiveInt
    proposal_overlap: Share
    least_side: NonNegativeFloat  # minimum side of a proposal, in pixels of the original image
    least: NonNegativeInt  # minimum number of regions per image
    most: PositiveInt
    confidence: Share  # regions with a lower confidence are chosen only to reach `least` regions
    # IoU thresholds of the chosen regions, tried in turn until at least `least` regions are left.
    overlaps: Annotated[tuple[Share, ...], Field(min_length=1)]
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise RecipeError(f"least={self.least} and most={self.most}: expected `least` <= `most`")
        if self.shorter > self.longer:
            raise RecipeError(f"shorter={self.shorter} and longer={self.longer}: expected `shorter` <= `longer`")

    def __str__(self) -> str:
        count = f"exactly {self.most}" if self.least == self.most else f"{self.least} to {self.most}"
        confident = f", confidence {self.confidence:g}" if self.confidence else ""
        overlap = f"NMS {' '.join(f'{overlap:g}' for overlap in self.overlaps)}"
        return f"{count} of {self.after_nms} proposals{confident}, {overlap}"


def rois_of(boxes: list[Float[Tensor, "_ 4"]]) -> Float[Tensor, "N 5"]:
    """Join the boxes of all images. Each row is the index of the image, then its box."""
    return torch.cat([torch.cat([some.new_full((len(some), 1), n), some], 1) for n, some in enumerate(boxes)])


@dataclass(frozen=True)
class Proposals:
    """The proposals of one image, highest score first. Boxes are in pixels of the resized image."""

    boxes: Float[Tensor, "N 4"]
    scores: Float[Tensor, "N"]


@dataclass(frozen=True)
class RawRegions:
    """The regions of one image, in the same order as in the published files.

    Class 0 is the background; attribute 0 means none.
    """

    rows: Int[Tensor, "R"]  # index of each region among the proposals
    boxes: Float[Tensor, "R 4"]  # corners in pixels of the original image
    scores: Float[Tensor, "R"]
    classes: Int[Tensor, "R"]
    probabilities: Float[Tensor, "R C"]  # class probabilities; column 0 is the background
    features: Float[Tensor, "R F"]
    attributes: Int[Tensor, "R"] | None = None
    attribute_scores: Float[Tensor, "R"] | None = None


def with_settings(own: S, changes: Mapping[str, Any]) -> S:
    """Return settings with `changes` applied. Raises RecipeError for an unknown name or a wrong type."""
    values = asdict(own)
    refuse_unknown(changes, values.keys() - {"dialect"}, "this detector")
    try:
        return of_json(type(own), values | dict(changes))
    except ValueError as error:
        raise RecipeError(f"a setting of this detector cannot be used: {error}") from error
