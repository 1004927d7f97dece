"""A picture and everything that is said about it, as a source reads it: strings, not yet tokens."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from diptych.core.regions import Regions

MASK_CELLS = 14  # VL-BERT's, of the cells that RoIAlign makes of a box
TAG = re.compile(r"\[(\d{1,9})\]")  # a word that names a thing, by its number


@dataclass(frozen=True)
class Question:
    """A question about the picture with the answers people gave (VQA v2 has ten)."""

    key: str
    text: str
    answers: tuple[str, ...]
    kind: str = "other"  # VQA v2's answer_type: "yes/no", "number" or "other"


@dataclass(frozen=True)
class Expression:
    """Words that single out one thing of the picture (RefCOCO)."""

    key: str
    text: str
    box: tuple[float, float, float, float]  # of the thing meant, fractions of the picture


@dataclass(frozen=True)
class Choices:
    """Visual commonsense reasoning: a question, four answers, four rationales.

    A word that names a thing is an index into `Record.objects` in the official files; here the text holds
    `[k]` in its place, k counting from 0.
    """

    key: str
    question: str
    answers: tuple[str, ...]
    answer: int
    rationales: tuple[str, ...] = ()
    rationale: int | None = None

    @property
    def named(self) -> list[int]:
        """The objects that its texts name, each once."""
        texts = (self.question, *self.answers, *self.rationales)
        return sorted({int(number) for text in texts for number in TAG.findall(text)})


@dataclass(frozen=True)
class Statement:
    """A sentence that is true or false of the picture (NLVR-like)."""

    key: str
    text: str
    true: bool


@dataclass(frozen=True)
class Object:
    """One thing that is truly there: ground truth, never an input of a model under test."""

    kind: str
    box: tuple[float, float, float, float]  # of its visible part, fractions of the picture
    attributes: Mapping[str, str] = field(default_factory=dict)  # such as colour, size, pose
    visible: float = 1.0  # share of it that nothing covers
    # Which of MASK_CELLS x MASK_CELLS cells of the box show it: "#" or "."; (): not known.
    mask: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class GeneratedCaption:
    """Where a caption comes from that a model wrote (`diptych augment`); it is one of the record's captions too."""

    text: str
    by: str  # the system and the digest of its weights, such as unified-vlp/3f2a9c01d4e5
    score: float  # the log-probability that the model gave it


@dataclass(frozen=True)
class Record:
    """One picture with its words. `key` is unique in a data set, and the same for the same picture."""

    key: str
    split: str = "train"
    image: Path | None = None
    size: tuple[int, int] | None = None  # width, height in pixels
    captions: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    expressions: tuple[Expression, ...] = ()
    choices: tuple[Choices, ...] = ()
    statements: tuple[Statement, ...] = ()
    objects: tuple[Object, ...] = ()
    relations: tuple[tuple[int, str, int], ...] = ()  # (subject, relation, object), indices into objects
    regions: Regions | None = None  # what a detector saw, once extracted
    generated: tuple[GeneratedCaption, ...] = field(default=(), repr=False)  # which of the captions are a model's

    def best_regions(self, most: int) -> "Record":
        """With so many of its regions, those that the detector is surest of."""
        return self if self.regions is None else replace(self, regions=self.regions.first(most))
