"""An image and its annotations as in a data set: strings, not yet tokens.

The types of the fields carry the marks below. Storing, joining, mirroring, checking and building vocabularies follow
these marks. A new field, or a task's own texts in `Record.more`, needs no more code for any of them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

from diptych.core.regions import Regions

MASK_CELLS = 14  # cells per side of a box, as VL-BERT's RoIAlign makes them
TAG = re.compile(r"\[(\d{1,9})\]")  # a word that names an object, by its number
ONE_SOURCE = {"joined": "first"}  # metadata of a field that is never merged from two sources
Mark = Literal["text", "tagged", "label", "box", "cells", "regions"]
ReadText = Annotated[str, "text"]  # text that models read
TaggedText = Annotated[str, "tagged"]  # the same, with tags that name objects
ToldText = Annotated[str, "label"]  # text that no model reads; mirroring still swaps left and right in it
Corners = Annotated[tuple[float, float, float, float], "box"]  # x1, y1, x2, y2 as fractions of the image
Fingerprint = tuple[int, int, int] | tuple[int, int]
CellRow = Annotated[str, "cells"]  # one row of a mask, from left to right


@dataclass(frozen=True)
class Question:
    """A question about the image with the answers of annotators (VQA v2 has ten)."""

    key: str
    text: ReadText
    answers: tuple[ToldText, ...]
    kind: str = "other"  # VQA v2's answer_type: "yes/no", "number" or "other"


@dataclass(frozen=True)
class Expression:
    """A referring expression: a text that singles out one object of the image (RefCOCO)."""

    key: str
    text: ReadText
    box: Corners  # box of the object that is meant


@dataclass(frozen=True)
class Choices:
    """Visual commonsense reasoning: a question, four answers, four rationales.

    Where the official files have an index into the objects, the text holds a tag `[k]`: object k of `Record.objects`,
    counted from 0.
    """

    key: str
    question: TaggedText
    answers: tuple[TaggedText, ...]
    answer: int
    rationales: tuple[TaggedText, ...] = ()
    rationale: int | None = None

    @property
    def named(self) -> list[int]:
        """The indices of the objects that the texts name, in ascending order, each once."""
        texts = (self.question, *self.answers, *self.rationales)
        return sorted({int(number) for text in texts for number in TAG.findall(text)})


@dataclass(frozen=True)
class Statement:
    """A sentence that is true or false of the image (as in NLVR)."""

    key: str
    text: ReadText
    true: bool


@dataclass(frozen=True)
class TaskItem:
    """One item of a task that has no field of its own; `Record.more` holds them by the task's name."""

    key: str
    text: ReadText = ""
    answers: tuple[ToldText, ...] = ()
    boxes: tuple[Corners, ...] = ()  # boxes that the item is about


@dataclass(frozen=True)
class Object:
    """One object of the image. Ground truth: never an input of a model under test."""

    kind: str
    box: Corners  # box of its visible part
    attributes: Mapping[str, str] = field(default_factory=dict)  # such as colour, size, pose
    visible: float = 1.0  # share of it that nothing occludes, 0 to 1
    # MASK_CELLS rows of MASK_CELLS cells of the box: "#" shows the object, "." does not; (): not known.
    mask: tuple[CellRow, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class GeneratedCaption:
    """Origin of a caption that a model wrote (`diptych augment`). The caption itself is among the record's captions."""

    text: ToldText
    by: str  # the system and the digest of its weights, such as unified-vlp/3f2a9c01d4e5
    score: float  # log-probability under that model


@dataclass(frozen=True)
class Record:
    """One image with its annotations. `key` is unique in a data set, and the same for the same image."""

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
    regions: Annotated[Regions, "regions"] | None = None  # what a detector found, once extracted
    # Origins of the captions that a model wrote.
    generated: tuple[GeneratedCaption, ...] = field(default=(), repr=False)
    # The number that the data set gave the image, where its name is not that number.
    image_id: int | None = field(default=None, repr=False)
    # The names that the data set gave the captions, in their order; "": none. Captions after the last have none.
    caption_ids: tuple[str, ...] = field(default=(), repr=False)
    # Content hash, difference hash, and difference hash of the mirrored image (diptych.vision.fingerprints). Set when
    # the image is opened for extraction; stores made before 0.1 lack the third.
    fingerprint: Fingerprint | None = field(default=None, repr=False, metadata=ONE_SOURCE)
    # Items of further tasks, by the task's name.
    more: Mapping[str, tuple[TaskItem, ...]] = field(default_factory=dict, repr=False)

    @property
    def content(self) -> int | str:
        """The content hash, which copies of the image under other keys share; the key if the hash is not known."""
        return self.key if self.fingerprint is None else self.fingerprint[0]

    def caption_id(self, number: int) -> str:
        """Return the name that the data set gave a caption; "" if it gave none."""
        return self.caption_ids[number] if number < len(self.caption_ids) else ""

    def best_regions(self, most: int) -> "Record":
        """Keep only the `most` regions of highest confidence."""
        return self if self.regions is None else replace(self, regions=self.regions.first(most))

    def words(self) -> dict[str, tuple[Any, ...]]:
        """All texts that models read, by the name of the field or of the task in `more`."""
        return {name: getattr(self, name) for name in WORDED} | dict(self.more)

    def marked(self, *kinds: Mark) -> list[Any]:
        """All values with one of these marks, in the order of the fields."""
        values: list[Any] = []

        def keep(value: Any) -> Any:
            values.append(value)
            return value

        self.changed(dict.fromkeys(kinds, keep))
        return values

    def changed(self, changes: Mapping[Mark, Callable[[Any], Any]]) -> "Record":
        """Apply to each marked value the change for its mark; unmarked values are kept."""
        return cast(Record, _changed(self, Record, frozenset(changes), changes))

    def joined(self, other: "Record") -> "Record":
        """Merge two records of one image. Texts are concatenated; other fields come from this record if it has them."""
        return replace(self, **dict(self._joined(other)))

    def _joined(self, other: "Record") -> Iterator[tuple[str, Any]]:
        for one in fields(self):
            first, second = getattr(self, one.name), getattr(other, one.name)
            if one.name == "caption_ids":
                yield one.name, (first + ("",) * (len(self.captions) - len(first)) if second else first) + second
            elif isinstance(first, Mapping):
                yield one.name, {name: first.get(name, ()) + second.get(name, ()) for name in {**first, **second}}
            elif one.default == () and one.metadata != ONE_SOURCE:
                yield one.name, first + second
            else:
                yield one.name, second if first in (None, ()) else first


def _changed(value: Any, hint: Any, kinds: frozenset[str], changes: Mapping[Any, Callable[[Any], Any]]) -> Any:
    """Apply the changes inside a value of type `hint`."""
    if value is None or not _marks(hint) & kinds:
        return value
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return changes[hint.__metadata__[0]](value)
    if isinstance(hint, type) and is_dataclass(hint):
        new = {name: _changed(getattr(value, name), one, kinds, changes) for name, one in _parts(hint, kinds)}
        return replace(value, **new)
    if kind is tuple:
        hints = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_changed(one, its, kinds, changes) for one, its in zip(value, hints, strict=True))
    if kind is Mapping:
        return {name: _changed(one, inner[1], kinds, changes) for name, one in value.items()}
    return _changed(value, next(one for one in inner if one is not type(None)), kinds, changes)  # X | None


@cache
def _parts(noun: type, kinds: frozenset[str]) -> list[tuple[str, Any]]:
    """The fields of a dataclass that contain such marks, with their types."""
    return [(name, hint) for name, hint in get_type_hints(noun, include_extras=True).items() if _marks(hint) & kinds]


@cache
def _marks(hint: Any) -> frozenset[str]:
    """All marks inside a type; those inside `Regions` do not count."""
    if get_origin(hint) is Annotated:
        return frozenset(hint.__metadata__)
    noun = isinstance(hint, type) and is_dataclass(hint) and hint is not Regions
    inner = get_type_hints(hint, include_extras=True).values() if noun else get_args(hint)
    return frozenset[str]().union(*map(_marks, inner))


READ: tuple[Mark, ...] = ("text", "tagged")
WORDED = tuple(name for name, _ in _parts(Record, frozenset(READ)) if name != "more")  # fields that models read
