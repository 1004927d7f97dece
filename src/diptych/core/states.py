"""The outputs of a model, and requests for the part of them that is read."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass
class Stream:
    """States of one encoder, special tokens ([CLS], [IMG]) included: its input and the output of each layer."""

    layers: tuple[Float[Tensor, "B N D"], ...]
    present: Bool[Tensor, "B N"]  # False: padding

    @property
    def last(self) -> Float[Tensor, "B N D"]:
        """Output of the last layer."""
        return self.layers[-1]


@dataclass
class States:
    """Final hidden states by block, as a model returns them. Rows of absent regions and words are undefined: mask them.

    - regions (B R D), text (B T D): states of the regions and of the tokens in `Batch.text`, in their order.
    - target (B U D): states of the target; None without one.
    - special (B D each): states of special tokens by name, "cls", "sep", "img", "slot". Heads name in `reads` those
      that they need.
    - unimodal: the encoder of the regions and that of the text, before cross-modal attention. A special token is the
      first position of its stream.
    - joint: the same two in the cross-modal layers.
    - written: a decoder that has read the text.
    - embedded: inputs by name, "regions" (B R D), "places", "image", "features".
    - layers (B L D each): all positions after each layer, if the model keeps them.
    """

    regions: Float[Tensor, "B R D"]
    text: Float[Tensor, "B T D"]
    target: Float[Tensor, "B U D"] | None = None
    special: dict[str, Float[Tensor, "B D"]] = field(default_factory=dict)  # "cls", "sep", ...
    unimodal: tuple[Stream, Stream] | None = None  # regions and text before cross-modal attention
    joint: tuple[Stream, Stream] | None = None  # regions and text in the cross-modal layers
    written: Stream | None = None  # states of a decoder that has read the text (VQA)
    # Input embeddings: "regions" (features of regions), "places" (their boxes), "image" (feature of the whole image),
    # "features" (computed from pixels).
    embedded: dict[str, Tensor] = field(default_factory=dict)
    layers: tuple[Tensor, ...] = ()  # all positions after each layer, (B, L, D) each; only if the model keeps them


@dataclass(frozen=True)
class StateRequest:
    """The final states that a loss or a prediction reads. The last layer need not be run for the others.

    Masks are per block; None: nothing of that block is read. Rows of `States` outside the masks are undefined. Without
    a request (`Batch.request` is None) a model computes all states.
    """

    regions: Bool[Tensor, "B R"] | None = None
    text: Bool[Tensor, "B T"] | None = None
    target: Bool[Tensor, "B U"] | None = None
    samples: Bool[Tensor, "B"] | None = None  # samples that are scored, of a head with one output per sample
    embedded: Bool[Tensor, "B R"] | None = None  # regions as embedded, before the first layer
    heads: frozenset[str] = frozenset()  # keys of `Model.heads`; a head's `reads` names its special tokens

    @property
    def masks(self) -> list[Tensor]:
        """The masks that are given."""
        return [mask for field in fields(self) if isinstance(mask := getattr(self, field.name), Tensor)]

    @property
    def mask(self) -> Bool[Tensor, "B *N"]:
        """The only mask of an objective that reads single rows; `Batch.where` converts it to indices."""
        (mask,) = self.masks
        return mask

    def __or__(self, other: StateRequest) -> StateRequest:
        pairs = ((one.name, getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        return StateRequest(**{name: b if a is None else a if b is None else a | b for name, a, b in pairs})
