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
    samples: Bool[Tensor, "B"] | None = None  # of what a head says of each, those that are scored
    embedded: Bool[Tensor, "B R"] | None = None  # regions as they were embedded, before any layer
    heads: frozenset[str] = frozenset()  # names in `Model.heads`; each knows what it `reads`

    @property
    def mask(self) -> Bool[Tensor, "B *N"]:
        """The one that an objective names, whose places `Batch.where` finds."""
        (mask,) = self._masks()
        return mask

    @property
    def picks(self) -> bool:
        """Whether there is one."""
        return len(self._masks()) == 1

    def _masks(self) -> list[Tensor]:
        every = (self.regions, self.text, self.target, self.samples, self.embedded)
        return [mask for mask in every if mask is not None]

    def __or__(self, other: Asked) -> Asked:
        return Asked(
            _either(self.regions, other.regions),
            _either(self.text, other.text),
            _either(self.target, other.target),
            _either(self.samples, other.samples),
            _either(self.embedded, other.embedded),
            self.heads | other.heads,
        )


def _either(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else one | other
