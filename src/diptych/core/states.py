"""What a model hands back."""

from dataclasses import dataclass, field

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass
class Stream:
    """One encoder's states, special tokens ([CLS], [IMG]) included, after each layer; and which positions are there."""

    layers: tuple[Float[Tensor, "B N D"], ...]
    present: Bool[Tensor, "B N"]

    @property
    def last(self) -> Float[Tensor, "B N D"]:
        return self.layers[-1]


@dataclass
class States:
    """Final hidden states, apart by block. Rows of absent regions and words hold rubbish: mask them."""

    regions: Float[Tensor, "B R D"]
    text: Float[Tensor, "B T D"]
    target: Float[Tensor, "B U D"] | None = None
    special: dict[str, Float[Tensor, "B D"]] = field(default_factory=dict)  # "cls", "sep", ...
    unimodal: tuple[Stream, Stream] | None = None  # regions and text before the modalities met
    joint: tuple[Stream, Stream] | None = None  # regions and text while they met
    written: Stream | None = None  # of a decoder that has read the text (VQA)
    # Of the input: embedded features ("regions") and "places" of regions, that of the whole ("image"), what pixels gave
    # ("features").
    embedded: dict[str, Tensor] = field(default_factory=dict)
    layers: tuple[Tensor, ...] = ()  # all positions after each layer, where asked for: (B, L, D) each
