"""The base class of networks that find boxes, called proposers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.selection import EXACTLY_100, Selection


@dataclass(frozen=True)
class Candidates:
    """All boxes that a proposer found in one image. A selection rule later chooses the regions among them."""

    boxes: Float[Tensor, "N 4"]  # corners as fractions of the image, 0 to 1
    scores: Float[Tensor, "N"]
    labels: Float[Tensor, "N C"] | None  # class probabilities; None: the network has no classes
    features: Float[Tensor, "N F"] | None = None  # a feature per box, if the network computes them
    maps: Sequence[Float[Tensor, "_ _ _"]] = ()  # or feature maps of the padded square image
    share: Float[Tensor, "2"] | None = None  # part of the square's width and height that the image covers


def corners_of_centred(boxes: Float[Tensor, "N 4"]) -> Float[Tensor, "N 4"]:
    """Convert boxes from centre, width and height to corners x1 y1 x2 y2."""
    centres, halves = boxes[:, :2], 0.5 * boxes[:, 2:]
    return torch.cat([centres - halves, centres + halves], 1)


class Proposer(nn.Module):
    """A network that finds boxes. `feature_size`: 0 if the network computes no features.

    `usual`: its default selection rule.
    """

    usual: Selection = EXACTLY_100

    def __init__(self, name: str, class_names: Sequence[str], feature_size: int = 0) -> None:
        super().__init__()
        self.name, self.class_names, self.feature_size = name, tuple(class_names), feature_size

    def propose(self, pictures: Sequence[Picture]) -> list[Candidates]:
        """Return the candidate boxes of each image."""
        raise NotImplementedError

    @property
    def described(self) -> Mapping[str, Any]:
        """Return the description, without weights, that `from_described` needs to build the same network.

        It is stored as JSON.
        """
        raise NotImplementedError
