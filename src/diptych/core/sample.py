"""One picture and some words about it, ready for an objective: tokens, not yet padded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Int
from torch import Tensor

from diptych.core.attention import BIDIRECTIONAL, Attention
from diptych.core.regions import Regions

IGNORE = -1  # a label where nothing is to be predicted


@dataclass(frozen=True)
class Sample:
    """What a loader hands to `Objective.prepare`, and what that hands on to `collate`.

    `picture` names the picture, so that no objective takes two captions of one picture for a mismatch.
    """

    key: str
    picture: str
    regions: Regions | None
    text: Int[Tensor, "T"]  # what the model reads
    text_labels: Int[Tensor, "T"] | None = None  # what it must say there; IGNORE elsewhere
    text_regions: Int[Tensor, "T"] | None = None  # the region a word names (VCR); IGNORE elsewhere
    target: Int[Tensor, "U"] | None = None  # what a decoder writes, or queries
    target_labels: Int[Tensor, "U"] | None = None
    attention: Attention = BIDIRECTIONAL
    target_start: int = 0  # the place in the sentence of the target's first word, where it is a part of one
    grounded: bool = False  # each word is read as the regions that it attends to (XGPT's IDA)
    matched: bool = True  # whether text and picture belong together
    group: str | None = None  # samples that are scored against each other
    truth: dict[str, Any] = field(default_factory=dict)  # of the task: answers, references
    seed: int | None = None  # of what the model draws for it while it learns, such as words; None: torch's generator

    def __post_init__(self) -> None:
        for name in ("text", "target"):
            tokens, labels = getattr(self, name), getattr(self, f"{name}_labels")
            assert labels is None or labels.shape == tokens.shape, (self.key, name)

    def __len__(self) -> int:
        """Positions, without marks: what length bucketing sorts by."""
        return sum(len(x) for x in (self.regions, self.text, self.target) if x is not None)


@dataclass(frozen=True)
class Partners:
    """The global batch of which a sample is one, where wrong pairs find their other half. Text alone is none of it."""

    samples: Sequence[Sample]  # their words; `regions` may not be read yet
    read: Callable[[int], Sample | None]  # one of them with its regions; None where they cannot be read

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Partners":
        """Samples that are all there."""
        pictured = [sample for sample in samples if sample.regions is not None]
        return cls(pictured, pictured.__getitem__)
