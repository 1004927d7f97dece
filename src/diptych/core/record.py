"""A record: an image and its annotations as in a data set, with texts as strings.

The types of the fields are annotated with marks, such as "text" or "box". Code that stores, joins, mirrors or checks
records, or builds vocabularies, finds the fields by these marks. So a new field needs a mark, but no further code.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

from diptych.core.regions import Regions

MASK_CELLS = 14  # a mask has this many cells per side, as in VL-BERT's RoIAlign
TAG = re.compile(r"\[(\d{1,9})\]")  # a word that refers to an object by its index, such as [0]
ONE_SOURCE = {"joined": "first"}  # `joined` takes such a field from only one record
Mark = Literal["text", "tagged", "label", "box", "cells", "regions"]
ReadText = Annotated[str, "text"]  # text that models read
TaggedText = Annotated[str, "tagged"]  # text that models read, with tags such as [0]
ToldText = Annotated[str, "label"]  # text that is not an input of models; mirroring swaps "left" and "right" in it
Corners = Annotated[tuple[float, float, float, float], "box"]  # (x1, y1, x2, y2) from 0 to 1
Fingerprint = tuple[int, int]
Cells = Annotated[tuple[str, ...], "cells"]  # the rows of an object's mask, as text


@dataclass(frozen=True)
class Question:
    """A question about the image with the annotators' answers (ten in VQA v2)."""

    key: str
    text: ReadText
    answers: tuple[ToldText, ...]
    kind: str = "other"  # VQA v2's answer_type: "yes/no", "number" or "other"


@dataclass(frozen=True)
class Expression:
    """A referring expression: a phrase that describes exactly one object of the image (RefCOCO)."""

    key: str
    text: ReadText
    box: Corners  # box of the described object


@dataclass(frozen=True)
class Choices:
    """A question of visual commonsense reasoning with four answers and four rationales.

    The texts refer to objects by tags: `[k]` means object k of `Record.objects`, counted from 0.
    """

    key: str
    question: TaggedText
    answers: tuple[TaggedText, ...]
    answer: int
    rationales: tuple[TaggedText, ...] = ()
    rationale: int | None = None

    @property
    def named(self) -> list[int]:
        """The indices of all objects that the texts refer to, ascending and without duplicates."""
        texts = (self.question, *self.answers, *self.rationales)
        return sorted({int(number) for text in texts for number in TAG.findall(text)})


@dataclass(frozen=True)
class Statement:
    """A statement about the image that is true or false (NLVR)."""

    key: str
    text: ReadText
    true: bool


@dataclass(frozen=True)
class TaskItem:
    """An item of a task that has no field in `Record`. `Record.more` holds such items by the task's name."""

    key: str
    text: ReadText = ""
    answers: tuple[ToldText, ...] = ()
    boxes: tuple[Corners, ...] = ()  # boxes that the text is about


@dataclass(frozen=True)
class Object:
    """An annotated object of the image. It is ground truth, which an evaluated model must not read."""

    kind: str
    box: Corners  # box of the object's visible part
    attributes: Mapping[str, str] = field(default_factory=dict)  # {attribute: value}, such as {"colour": "red"}
    visible: float = 1.0  # visible share of the object, 0 to 1
    # Mask of MASK_CELLS x MASK_CELLS cells of the box: "#" shows the object, "." does not. (): unknown.
    mask: Cells = field(default=(), repr=False)


@dataclass(frozen=True)
class GeneratedCaption:
    """The origin of a generated caption (`diptych augment`). The caption itself is in `Record.captions`."""

    text: ToldText
    by: str  # model that generated it: system and digest of the weights, such as unified-vlp/3f2a9c01d4e5
    score: float  # log-probability of the caption under this model


@dataclass(frozen=True)
class Record:
    """An image with its annotations. `key` identifies the image in a data set."""

    key: str
    split: str = "train"
    image: Path | None = None
    size: tuple[int, int] | None = None  # (width, height) of the image in pixels
    captions: tuple[ReadText, ...] = ()
    questions: tuple[Question, ...] = ()
    expressions: tuple[Expression, ...] = ()
    choices: tuple[Choices, ...] = ()
    statements: tuple[Statement, ...] = ()
    objects: tuple[Object, ...] = field(default=(), metadata=ONE_SOURCE)
    # (subject, relation, object); subject and object are indices into `objects`
    relations: tuple[tuple[int, ToldText, int], ...] = field(default=(), metadata=ONE_SOURCE)
    regions: Annotated[Regions, "regions"] | None = None  # detected regions; None before extraction
    # Captions that a model generated, each with the model's name and a score.
    generated: tuple[GeneratedCaption, ...] = field(default=(), repr=False)
    # The data set's id of the image, if the image's name does not contain it.
    image_id: int | None = field(default=None, repr=False)
    # The data set's ids of the captions, in order. "" or a missing entry: no id.
    caption_ids: tuple[str, ...] = field(default=(), repr=False)
    # (content hash, perceptual hash); see diptych.vision.fingerprints. Extraction computes it.
    fingerprint: Fingerprint | None = field(default=None, repr=False, metadata=ONE_SOURCE)
    # {task: items}, for tasks without a field of their own in this class.
    more: Mapping[str, tuple[TaskItem, ...]] = field(default_factory=dict, repr=False)

    @property
    def content(self) -> int | str:
        """The content hash, which is equal for copies of the image under other keys.

        If the hash is unknown, the value is the key.
        """
        return self.key if self.fingerprint is None else self.fingerprint[0]

    def caption_id(self, number: int) -> str:
        """Return the data set's id of caption `number`, or "" if the caption has no id."""
        return self.caption_ids[number] if number < len(self.caption_ids) else ""

    def best_regions(self, most: int) -> "Record":
        """Return the record with only its most confident regions, at most `most` of them."""
        return self if self.regions is None else replace(self, regions=self.regions.first(most))

    def words(self) -> dict[str, tuple[Any, ...]]:
        """Return {field, or task in `more`: entries} of the annotations whose texts models read."""
        return {name: getattr(self, name) for name in WORDED} | dict(self.more)

    def marked(self, *kinds: Mark) -> list[Any]:
        """Return all values that have one of these marks, in the order of the fields."""
        values: list[Any] = []

        def keep(value: Any) -> Any:
            values.append(value)
            return value

        self.changed(dict.fromkeys(kinds, keep))
        return values

    def changed(self, changes: Mapping[Mark, Callable[[Any], Any]]) -> "Record":
        """Return a copy of the record in which each value with a mark in `changes` is replaced by
        `changes[mark](value)`.
        """
        return cast(Record, _changed(self, Record, frozenset(changes), changes))

    def joined(self, other: "Record") -> "Record":
        """Merge two records of the same image.

        Texts are concatenated. Other fields are taken from this record, or from `other` if this record lacks them.
        """
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
    """Return a copy of `value` in which each marked value is changed.

    `hint` is the type of `value`, with its marks. `changes` maps a mark to a function; `kinds` are its keys.
    """
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
    # An optional field, such as X | None.
    return _changed(value, next(one for one in inner if one is not type(None)), kinds, changes)


@cache
def _parts(noun: type, kinds: frozenset[str]) -> list[tuple[str, Any]]:
    """Return (field, type) for each field of a dataclass whose type has one of the marks `kinds`."""
    return [(name, hint) for name, hint in get_type_hints(noun, include_extras=True).items() if _marks(hint) & kinds]


@cache
def _marks(hint: Any) -> frozenset[str]:
    """Return all marks inside a type, without marks inside `Regions`."""
    if get_origin(hint) is Annotated:
        return frozenset(hint.__metadata__)
    noun = isinstance(hint, type) and is_dataclass(hint) and hint is not Regions
    inner = get_type_hints(hint, include_extras=True).values() if noun else get_args(hint)
    return frozenset[str]().union(*map(_marks, inner))


READ: tuple[Mark, ...] = ("text", "tagged")
WORDED = tuple(name for name, _ in _parts(Record, frozenset(READ)) if name != "more")  # fields that models read
