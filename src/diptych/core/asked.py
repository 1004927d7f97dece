"""Which of a model's final states are read: its last layer need not be run for the others."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor


@dataclass(frozen=True)
class Asked:
    """Of each block the rows that are read (None: none), and the heads that read special tokens or whole streams.

    What stands in `States` at other rows is rubbish. A batch that asks for nothing in particular (`Batch.asked` is
    None) is answered in full.
    """

    regions: Bool[Tensor, "B R"] | None = None
    text: Bool[Tensor, "B T"] | None = None
    target: Bool[Tensor, "B U"] | None = None
    heads: frozenset[str] = frozenset()  # names in `Model.heads`; each knows what it `reads`

    def __or__(self, other: Asked) -> Asked:
        return Asked(
            _either(self.regions, other.regions),
            _either(self.text, other.text),
            _either(self.target, other.target),
            self.heads | other.heads,
        )


def _either(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one | other
