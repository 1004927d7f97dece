"""The outputs of a model (`States`), and requests for some of them (`StateRequest`)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass
class Stream:
    """The states of an encoder: its input, and the output of each layer. Special tokens ([CLS], [IMG]) are included."""

    layers: tuple[Float[Tensor, "B N D"], ...]
    present: Bool[Tensor, "B N"]  # False at padding

    @property
    def last(self) -> Float[Tensor, "B N D"]:
        """The output of the last layer."""
        return self.layers[-1]


@dataclass
class States:
    """The final hidden states that a model returns. States at padding are undefined and must be masked.

    - regions (B R D), text (B T D): states of the regions and of the tokens of `Batch.text`.
    - target (B U D): states of `Batch.target`; None if there is no target.
    - special: {name: states (B D)} of special tokens "cls", "sep", "img", "slot". A head's `reads` names the special
      tokens that it needs.
    - unimodal: (region stream, text stream) before cross-modal attention. Special tokens are first in a stream.
    - joint: (region stream, text stream) in the cross-modal layers.
    - written: states of a decoder that has read the text.
    - embedded: {name: input embeddings}, such as "regions" (B R D).
    - layers: states (B L D) of all positions after each layer; empty unless the model keeps them.
    """

    regions: Float[Tensor, "B R D"]
    text: Float[Tensor, "B T D"]
    target: Float[Tensor, "B U D"] | None = None
    # {name of a special token, such as "cls": its state}.
    special: dict[str, Float[Tensor, "B D"]] = field(default_factory=dict)
    unimodal: tuple[Stream, Stream] | None = None  # states of (regions, text) before cross-modal attention
    joint: tuple[Stream, Stream] | None = None  # states of (regions, text) in the cross-modal layers
    written: Stream | None = None  # states of a decoder that has read the text (VQA)
    # Input embeddings: "regions" (region features), "places" (boxes), "image" (feature of the whole image), "features"
    # (region features computed from pixels).
    embedded: dict[str, Tensor] = field(default_factory=dict)
    layers: tuple[Tensor, ...] = ()  # states (B, L, D) after each layer, if the model keeps them


@dataclass(frozen=True)
class StateRequest:
    """The final states that a loss or prediction reads. The model may skip all other states in its last layer.

    The fields are masks of blocks. None means that no state of the block is read. States outside the masks are
    undefined. If `Batch.request` is None, the model computes all states.
    """

    regions: Bool[Tensor, "B R"] | None = None
    text: Bool[Tensor, "B T"] | None = None
    target: Bool[Tensor, "B U"] | None = None
    samples: Bool[Tensor, "B"] | None = None  # True: a head with one output per sample scores this sample
    embedded: Bool[Tensor, "B R"] | None = None  # True: the input embedding of this region is needed
    heads: frozenset[str] = frozenset()  # names of the heads that will read the states

    @property
    def masks(self) -> list[Tensor]:
        """The masks that are not None."""
        return [mask for field in fields(self) if isinstance(mask := getattr(self, field.name), Tensor)]

    @property
    def mask(self) -> Bool[Tensor, "B *N"]:
        """The mask of a request for a single block. `Batch.where` converts it to indices."""
        (mask,) = self.masks
        return mask

    def __or__(self, other: StateRequest) -> StateRequest:
        pairs = ((one.name, getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        return StateRequest(**{name: b if a is None else a if b is None else a | b for name, a, b in pairs})
