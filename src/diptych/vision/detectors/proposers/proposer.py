"""What all proposers have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from diptych.vision.detectors.detector import Picture


@dataclass(frozen=True)
class Candidates:
    """All boxes of one picture, of which a rule selects the regions."""

    boxes: Float[Tensor, "N 4"]  # corners, fractions of the picture, 0 to 1
    scores: Float[Tensor, "N"]
    labels: Float[Tensor, "N C"] | None  # probabilities of the classes; None where the network names none
    features: Float[Tensor, "N F"] | None = None  # the network's own


class Proposer(nn.Module):
    """A network that finds boxes. `feature_size` is 0 where it gives no features of its own."""

    def __init__(self, name: str, class_names: Sequence[str], feature_size: int = 0) -> None:
        super().__init__()
        self.name, self.class_names, self.feature_size = name, tuple(class_names), feature_size

    def propose(self, pictures: Sequence[Picture]) -> list[Candidates]:
        raise NotImplementedError

    @property
    def described(self) -> Mapping[str, Any]:
        """What besides the weights says how to build it again, as JSON."""
        raise NotImplementedError
