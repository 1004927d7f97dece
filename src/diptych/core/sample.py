"""One image and one text about it, as tokens that are not yet padded."""

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
    """An image and a text: the input of `Objective.prepare`, and its output, which `collate` stacks into a batch.

    `picture` and, if known, `content` identify the image, so that two captions of one image are never used as a
    mismatched pair.
    """

    key: str
    picture: str
    regions: Regions | None
    text: Int[Tensor, "T"]  # token ids that the model reads
    text_labels: Int[Tensor, "T"] | None = None  # token ids to predict there; IGNORE elsewhere
    text_regions: Int[Tensor, "T"] | None = None  # the region that a word names (VCR); IGNORE elsewhere
    target: Int[Tensor, "U"] | None = None  # token ids that a decoder reads, or queries
    target_labels: Int[Tensor, "U"] | None = None
    attention: Attention = BIDIRECTIONAL
    target_start: int = 0  # position of the target's first word in its sentence, if it is a fragment
    grounded: bool = False  # each word is read as the regions that it attends to (XGPT's IDA)
    matched: bool = True  # whether text and image belong together
    group: str | None = None  # samples of the same group are scored against each other
    truth: dict[str, Any] = field(default_factory=dict)  # the task's ground truth: answers, references
    content: int | None = None  # content hash of the image (`Record.fingerprint`), equal for copies under other names
    seed: int | None = None  # of the model's random draws in training, such as words; None: torch's generator

    def __post_init__(self) -> None:
        for name in ("text", "target"):
            tokens, labels = getattr(self, name), getattr(self, f"{name}_labels")
            assert labels is None or labels.shape == tokens.shape, (self.key, name)

    @property
    def image(self) -> str:
        """Name of the image, which copies under other names share if their content is known."""
        return self.picture if self.content is None else f"{self.content:016x}"

    def __len__(self) -> int:
        """Number of positions without special tokens; the loader buckets samples by it."""
        return sum(len(x) for x in (self.regions, self.text, self.target) if x is not None)


@dataclass(frozen=True)
class Partners:
    """The samples of a global batch that have an image. Mismatched pairs are made from them."""

    samples: Sequence[Sample]  # with their texts; `regions` may not be loaded yet
    read: Callable[[int], Sample | None]  # loads one sample with its regions; None if they cannot be read

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Partners":
        """Partners from samples whose regions are loaded; text alone is left out."""
        pictured = [sample for sample in samples if sample.regions is not None]
        return cls(pictured, pictured.__getitem__)
