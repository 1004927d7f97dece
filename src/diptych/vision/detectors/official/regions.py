"""Settings, results and the pipeline that the official detectors share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from diptych.runtime.errors import RecipeError
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.official.prepare import Prepared

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class OfficialSettings:
    """Settings that are not in the weights. Sides are pixels; overlaps are IoU."""

    shorter: int  # side of the resized image
    longer: int  # limit of its other side
    before_nms: int  # proposals per map
    after_nms: int
    proposal_overlap: float
    least_side: float  # of a proposal, in pixels of the original image
    least: int  # regions
    most: int
    confidence: float  # regions below it are chosen only to make `least`
    overlaps: tuple[float, ...]  # of chosen regions; several are tried in turn until enough regions are left
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


class OfficialPipeline(ABC):
    """A network with its pre- and postprocessing: prepared images in, regions out."""

    @abstractmethod
    def prepare(self, picture: Picture) -> Prepared:
        """Resize and normalise an image. Raises DataError for one that is too narrow."""

    @abstractmethod
    def propose(self, images: Float[Tensor, "B 3 h w"], prepared: Sequence[Prepared]) -> tuple[Any, list[Tensor]]:
        """Return the maps of the images, and the proposals of each: boxes (N, 4) in its pixels."""

    @abstractmethod
    def describe(self, maps: Any, boxes: list[Tensor]) -> tuple[Tensor, ...]:
        """Return features, class logits, box deltas and, of some networks, attribute logits, of all boxes."""

    @abstractmethod
    def choose(self, *args: Any, **kwargs: Any) -> RawRegions:
        """Select an image's regions; arguments: its `Prepared`, its proposals, and their rows of each of `describe`."""

    def find(self, images: Float[Tensor, "B 3 h w"], prepared: Sequence[Prepared]) -> list[RawRegions]:
        """Return the regions of prepared images, all of one size."""
        maps, boxes = self.propose(images, prepared)
        counts = [len(of_one) for of_one in boxes]
        outputs = (torch.split(output.float(), counts) for output in self.describe(maps, boxes))
        return [self.choose(*of_one) for of_one in zip(prepared, boxes, *outputs, strict=True)]
