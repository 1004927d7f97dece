"""A sample: an image and a text as token ids, not padded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Int
from torch import Tensor

from diptych.core.attention import BIDIRECTIONAL, Attention
from diptych.core.regions import Regions

IGNORE = -1  # label of positions that are not predicted


@dataclass(frozen=True)
class Sample:
    """An image and a text. `Objective.prepare` masks samples, and `collate` stacks them into a batch.

    `picture` and `content` identify the image, so that captions of the same image never make a mismatched pair.
    """

    key: str
    picture: str
    regions: Regions | None
    text: Int[Tensor, "T"]  # token ids that the model reads
    text_labels: Int[Tensor, "T"] | None = None  # token ids to predict at positions of `text`; IGNORE elsewhere
    text_regions: Int[Tensor, "T"] | None = None  # index of the region that a token names (VCR); IGNORE elsewhere
    target: Int[Tensor, "U"] | None = None  # token ids that a decoder reads, or [MASK] queries
    target_labels: Int[Tensor, "U"] | None = None
    attention: Attention = BIDIRECTIONAL
    target_start: int = 0  # position of the target's first token in its sentence
    grounded: bool = False  # True: each word is replaced by the regions it attends to (XGPT's IDA)
    matched: bool = True  # False: a mismatched pair of text and image
    group: str | None = None  # samples of the same group are scored against each other
    truth: dict[str, Any] = field(default_factory=dict)  # the task's ground truth, such as {"class": 1}
    content: int | None = None  # content hash of the image (`Record.fingerprint`)
    seed: int | None = None  # seed of random draws in training, such as sampled words; None: torch's generator draws

    def __post_init__(self) -> None:
        for name in ("text", "target"):
            tokens, labels = getattr(self, name), getattr(self, f"{name}_labels")
            assert labels is None or labels.shape == tokens.shape, (self.key, name)

    @property
    def image(self) -> str:
        """A name of the image.

        If the content hash is known, copies of the image have the same name.
        """
        return self.picture if self.content is None else f"{self.content:016x}"

    def __len__(self) -> int:
        """Number of positions without special tokens. The loader makes batches of samples with similar lengths."""
        return sum(len(x) for x in (self.regions, self.text, self.target) if x is not None)


@dataclass(frozen=True)
class Partners:
    """The samples of a step's whole batch that have an image. Mismatched pairs are made from them."""

    samples: Sequence[Sample]  # their `regions` may not be loaded yet; see `read`
    read: Callable[[int], Sample | None]  # index -> sample with its regions, or None if they cannot be read

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Partners":
        """Make partners of samples whose regions are loaded. Samples without an image are left out."""
        pictured = [sample for sample in samples if sample.regions is not None]
        return cls(pictured, pictured.__getitem__)
