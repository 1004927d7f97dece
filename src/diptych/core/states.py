"""What a model hands back."""

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass
class States:
    """Final hidden states, apart by block. Rows of absent regions and words hold rubbish: mask them."""

    regions: Float[Tensor, "B R D"]
    text: Float[Tensor, "B T D"]
    target: Float[Tensor, "B U D"] | None = None
    marks: dict[str, Float[Tensor, "B D"]] = field(default_factory=dict)  # "cls", "sep", ...
    unimodal: tuple[Tensor, Tensor] | None = None  # regions and text before the modalities met
    embedded: dict[str, Tensor] = field(default_factory=dict)  # of the input: "regions", "places"
    layers: tuple[Tensor, ...] = ()  # all positions after each layer, where asked for: (B, L, D) each
