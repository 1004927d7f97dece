"""A picture and everything that is said about it, as a source reads it: strings, not yet tokens.

The types of the fields carry the marks below, and whatever is done to every record follows from them: a new field, or
a task's own words in `Record.more`, is stored, joined, mirrored, checked and given to the vocabulary without more code.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from diptych.core.regions import Regions

MASK_CELLS = 14  # VL-BERT's, of the cells that RoIAlign makes of a box
TAG = re.compile(r"\[(\d{1,9})\]")  # a word that names a thing, by its number
ONE_SOURCE = {"joined": "first"}  # of a field that is never put together from two sources
Mark = Literal["text", "tagged", "label", "box", "cells", "regions"]
ReadText = Annotated[str, "text"]  # words that models read
TaggedText = Annotated[str, "tagged"]  # the same, with tags that name things
ToldText = Annotated[str, "label"]  # words that no model reads, which may speak of left and right all the same
Corners = Annotated[tuple[float, float, float, float], "box"]  # fractions of the picture
CellRow = Annotated[str, "cells"]  # of a mask, from left to right


@dataclass(frozen=True)
class Question:
    """A question about the picture with the answers people gave (VQA v2 has ten)."""

    key: str
    text: ReadText
    answers: tuple[ToldText, ...]
    kind: str = "other"  # VQA v2's answer_type: "yes/no", "number" or "other"


@dataclass(frozen=True)
class Expression:
    """Words that single out one thing of the picture (RefCOCO)."""

    key: str
    text: ReadText
    box: Corners  # of the thing meant


@dataclass(frozen=True)
class Choices:
    """Visual commonsense reasoning: a question, four answers, four rationales.

    A word that names a thing is an index into `Record.objects` in the official files; here the text holds
    `[k]` in its place, k counting from 0.
    """

    key: str
    question: TaggedText
    answers: tuple[TaggedText, ...]
    answer: int
    rationales: tuple[TaggedText, ...] = ()
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
    text: ReadText
    true: bool


@dataclass(frozen=True)
class TaskItem:
    """One thing that a task of its own asks of the picture; `Record.more` has them by the task's name."""

    key: str
    text: ReadText = ""
    answers: tuple[ToldText, ...] = ()
    boxes: tuple[Corners, ...] = ()  # the regions that it is about


@dataclass(frozen=True)
class Object:
    """One thing that is truly there: ground truth, never an input of a model under test."""

    kind: str
    box: Corners  # of its visible part
    attributes: Mapping[str, str] = field(default_factory=dict)  # such as colour, size, pose
    visible: float = 1.0  # share of it that nothing covers
    # Which of MASK_CELLS x MASK_CELLS cells of the box show it: "#" or "."; (): not known.
    mask: tuple[CellRow, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class GeneratedCaption:
    """Where a caption comes from that a model wrote (`diptych augment`); it is one of the record's captions too."""

    text: ToldText
    by: str  # the system and the digest of its weights, such as unified-vlp/3f2a9c01d4e5
    score: float  # the log-probability that the model gave it


@dataclass(frozen=True)
class Record:
    """One picture with its words. `key` is unique in a data set, and the same for the same picture."""

    key: str
    split: str = "train"
    image: Path | None = None
    size: tuple[int, int] | None = None  # width, height in pixels
    captions: tuple[ReadText, ...] = ()
    questions: tuple[Question, ...] = ()
    expressions: tuple[Expression, ...] = ()
    choices: tuple[Choices, ...] = ()
    statements: tuple[Statement, ...] = ()
    objects: tuple[Object, ...] = field(default=(), metadata=ONE_SOURCE)
    # (subject, relation, object), indices into objects
    relations: tuple[tuple[int, ToldText, int], ...] = field(default=(), metadata=ONE_SOURCE)
    regions: Annotated[Regions, "regions"] | None = None  # what a detector saw, once extracted
    generated: tuple[GeneratedCaption, ...] = field(default=(), repr=False)  # which of the captions are a model's
    # Words of further tasks, by their names.
    more: Mapping[str, tuple[TaskItem, ...]] = field(default_factory=dict, repr=False)

    def best_regions(self, most: int) -> "Record":
        """With so many of its regions, those that the detector is surest of."""
        return self if self.regions is None else replace(self, regions=self.regions.first(most))

    def words(self) -> dict[str, tuple[Any, ...]]:
        """What there is for models to read, by the name of its field or of its task in `more`."""
        return {name: getattr(self, name) for name in WORDED} | dict(self.more)

    def marked(self, *marks: Mark) -> list[Any]:
        """All of its values that have one of these marks, in the order of the fields."""
        found: list[Any] = []

        def keep(value: Any) -> Any:
            found.append(value)
            return value

        self.changed(dict.fromkeys(marks, keep))
        return found

    def changed(self, changes: Mapping[Mark, Callable[[Any], Any]]) -> "Record":
        """The record with each marked value put through the change for its mark."""
        changed: Record = _changed(self, Record, frozenset(changes), changes)
        return changed

    def joined(self, other: "Record") -> "Record":
        """Both in one: words behind each other; of the rest, what this record knows comes first."""
        return replace(self, **dict(self._joined(other)))

    def _joined(self, other: "Record") -> Iterator[tuple[str, Any]]:
        for one in fields(self):
            first, second = getattr(self, one.name), getattr(other, one.name)
            if isinstance(first, Mapping):
                yield one.name, {name: first.get(name, ()) + second.get(name, ()) for name in {**first, **second}}
            elif one.default == () and one.metadata != ONE_SOURCE:
                yield one.name, first + second
            else:
                yield one.name, second if first in (None, ()) else first


def _changed(value: Any, hint: Any, marks: frozenset[str], changes: Mapping[Any, Callable[[Any], Any]]) -> Any:
    """`value`, of the type `hint`, with the changes made inside."""
    if value is None or not _marks(hint) & marks:
        return value
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return changes[hint.__metadata__[0]](value)
    if isinstance(hint, type) and is_dataclass(hint):
        new = {name: _changed(getattr(value, name), one, marks, changes) for name, one in _parts(hint, marks)}
        return replace(value, **new)
    if kind is tuple:
        hints = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_changed(one, its, marks, changes) for one, its in zip(value, hints, strict=True))
    if kind is Mapping:
        return {name: _changed(one, inner[1], marks, changes) for name, one in value.items()}
    return _changed(value, next(one for one in inner if one is not type(None)), marks, changes)  # X | None


@cache
def _parts(noun: type, marks: frozenset[str]) -> list[tuple[str, Any]]:
    """The fields of a dataclass that hold such marks, with their types."""
    return [(name, hint) for name, hint in get_type_hints(noun, include_extras=True).items() if _marks(hint) & marks]


@cache
def _marks(hint: Any) -> frozenset[str]:
    """All marks inside a type."""
    if get_origin(hint) is Annotated:
        return frozenset(hint.__metadata__)
    noun = isinstance(hint, type) and is_dataclass(hint) and hint is not Regions
    inner = get_type_hints(hint, include_extras=True).values() if noun else get_args(hint)
    return frozenset[str]().union(*map(_marks, inner))


READ: tuple[Mark, ...] = ("text", "tagged")
WORDED = tuple(name for name, _ in _parts(Record, frozenset(READ)) if name != "more")  # fields that models read
