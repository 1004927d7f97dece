"""How a task is asked: typed JSON in and out, and the words of the command line, of a service's page and of a card."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, get_origin

import torch
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from diptych.core import Object, Record, Regions, Task, tags
from diptych.data.store.tokens import Tokens
from diptych.models.decoding import DecodingOptions
from diptych.runtime.configs import derive
from diptych.runtime.devices import Precision, precision_of
from diptych.runtime.errors import ServingError
from diptych.tasks.run import ask

Text = Annotated[str, Field(min_length=1, max_length=500)]
Texts = Annotated[tuple[Text, ...], Field(max_length=16)]
PixelBox = tuple[int, int, int, int]  # COCO's left, top, width, height


class Message(BaseModel):
    """Typed JSON, as the service speaks it and `--json` prints it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def line(self) -> str:
        """One line of JSON, without what is not there."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=False)


class TaskRequest(Message):
    """What is asked of a picture. A task adds its fields, each with a `Form`.

    A field `seed` sets what is drawn; with a field `explain` the answer can have an `explanation`.
    """

    model: str | None = Field(default=None, description="A name from /v1/models; default: the first that can.")


class TaskAnswer(Message):
    """What a model answers. `shown` (a file) and `explanation` are fields of the tasks that have them."""

    picture: str = Field(description="The picture's name, as it was given.")
    precision: Precision | None = Field(default=None, description="In which the model computed it.")


class Region(Message):
    """One region of an explanation."""

    box: PixelBox
    label: str | None = Field(description="What the detector takes it for.")
    score: float = Field(description="The detector's confidence, 0 to 1.")


class Explanation(Message):
    """`weights[word][region]`: the log-probability in nats that the word loses without the region."""

    width: int
    height: int
    words: tuple[str, ...]
    regions: tuple[Region, ...]
    weights: tuple[tuple[float, ...], ...]


class ShareTable(Message):
    """Texts with their probabilities."""

    title: str
    rows: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, title: str, texts: Sequence[str], shares: Sequence[float]) -> ShareTable:
        return cls(title=title, rows=tuple(zip(texts, shares, strict=True)))


class PageView(Message):
    """An answer as the page shows it: parts from top to bottom. `summary` is for the list of the visit."""

    summary: str
    words: str | None = None  # with an explanation, words and regions light each other up
    explanation: Explanation | None = None
    box: PixelBox | None = None  # drawn on the picture
    verdicts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    tables: tuple[ShareTable, ...] = ()
    sheet: tuple[tuple[str, float], ...] = ()  # ids of pictures that were found, with their scores


@dataclass(frozen=True)
class Form:
    """How a field of a request is filled in: on the page, and on the command line."""

    label: str = ""  # on the page; empty: the page leaves the field out
    hint: str = ""  # an example, on the page
    more: bool = False  # on the page, below the others and folded
    argument: str = ""  # its name on the command line; empty: it is an option
    each: bool = False  # several arguments may be given: a request for each
    first: bool = False  # the argument comes before the picture
    option: str = ""  # name of the option, where it differs from the field's
    help: str = ""  # on the command line; default: the field's description


@dataclass(frozen=True)
class TaskModel:
    """An open model, as far as a task asks it."""

    model: Any
    system: str
    tokens: Tokens
    decoding: DecodingOptions  # of its recipe
    class_names: tuple[str, ...]  # what its detector can take a region for
    build: Callable[[], Task]  # the task as its recipe says; raises ServingError where the model has not learnt it

    def ask(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """The task's prediction for each query of each record, in order."""
        return ask(self.build(), self.model, records)

    def with_objects(self, record: Record, texts: Sequence[str]) -> Record:
        """The record with what texts name as [0]: its own objects, or its regions. Raises ServingError for others."""
        named = replace(record, objects=record.objects or self._seen(record))
        for text in texts:
            if over := [tag for tag in tags(text) if tag >= len(named.objects)]:
                there = ", ".join(f"[{number}] {thing.kind}" for number, thing in enumerate(named.objects)) or "none"
                raise ServingError(
                    f"“{text}” names [{over[0]}], and in {record.key} are seen: {there}; name one of them"
                )
        return named

    def _seen(self, record: Record) -> tuple[Object, ...]:
        """The regions of a record as objects, by what the detector takes them for."""
        assert record.regions is not None
        boxes, classes = record.regions.boxes.tolist(), record.regions.classes
        known = classes.argmax(1).tolist() if classes is not None and self.class_names else [None] * len(boxes)
        kinds = ["thing" if number is None else self.class_names[number] for number in known]
        return tuple(Object(kind, (x1, y1, x2, y2)) for kind, (x1, y1, x2, y2) in zip(kinds, boxes, strict=True))

    def precision(self, samples: int) -> Precision:
        """In which a batch of this size is computed."""
        return precision_of(self.model, samples)


@dataclass(frozen=True)
class Prediction:
    """`text` is the caption or the answer; `regions` is what it was made from."""

    text: str
    score: float  # a caption's log-probability; an answer's probability
    precision: Precision  # in which it was computed
    record: Record
    words: tuple[str, ...]  # of a caption; an answer counts as one
    weigh: Callable[[], Tensor] = field(repr=False, compare=False)
    others: tuple[tuple[str, float], ...] = ()  # further captions or answers with their scores, less likely ones
    class_names: tuple[str, ...] = ()  # what the detector can take a region for

    @property
    def regions(self) -> Regions:
        assert self.record.regions is not None
        return self.record.regions

    @cached_property
    def weights(self) -> Float[Tensor, "W R"]:
        """What each region weighed on each word: the log-probability (in nats) that the word loses without it and the
        regions that cover it, which have the same weight."""
        return self.weigh()

    def explain(self) -> Explanation:
        regions = self.regions
        return Explanation(
            width=regions.size[0],
            height=regions.size[1],
            words=self.words,
            regions=tuple(_region(regions, row, self.class_names) for row in range(len(regions))),
            weights=tuple(tuple(round(weight, 4) for weight in row) for row in self.weights.tolist()),
        )


@dataclass(frozen=True)
class InterfaceWords:
    """Words for a task's interface on a card and on the page."""

    does: str  # on a card, after "It": "answers questions about a picture"
    example: str  # on a card, a line of Python with the opened `model`
    tab: str = ""  # on the page; default: the verb
    pipeline: str | None = None  # the hub's name of it
    limit: Callable[[Task], str] | None = None  # on a card, a sentence about the task as a model has learnt it


@dataclass(frozen=True)
class TaskInterface:
    """How a task is asked: `diptych VERB`, `POST /v1/VERB`, a form of the page and a part of the card are made of it.

    `verb` and `help` are written out as strings: `diptych --help` reads them without importing the task.
    """

    verb: str
    help: str  # a sentence
    words: InterfaceWords
    request: type[TaskRequest]
    response: type[Message]  # a TaskAnswer, but where a gallery of pictures is asked
    # Answers to requests about records with regions, all in one pass. None: serving searches its gallery.
    answer: Callable[[TaskModel, Sequence[tuple[Record, Any]]], Sequence[Any]] | None = None
    # A message of an answer, its request and the picture's name. None: answers are messages already.
    message: Callable[[Any, Any, str], TaskAnswer] | None = None
    lines: Callable[[Any, bool], Sequence[str]] | None = None  # of a message, on a terminal; if nothing else was asked
    view: Callable[[Any, Any], PageView] | None = None  # of a request and its message; default: `lines` as verdicts
    # Whether a model can be asked; the second is the task of its recipe, None: imported. Default: it has learnt it.
    offered: Callable[[Any, str | None], bool] | None = None
    alike: Callable[[Any], object] = lambda _: None  # requests for which this is equal can share a pass
    programs: Literal["captions", "answers"] | None = None  # what `diptych export` makes of it

    @property
    def pictured(self) -> bool:
        """Whether it is asked of one picture, and not of a gallery."""
        return issubclass(self.response, TaskAnswer)

    @property
    def explains(self) -> bool:
        """Whether an answer can be explained by what its regions weighed."""
        return "explain" in self.request.model_fields

    @property
    def forms(self) -> dict[str, Form]:
        """By the request's fields, those that have one."""
        fields = self.request.model_fields
        found = {name: next((one for one in fields[name].metadata if isinstance(one, Form)), None) for name in fields}
        return {name: form for name, form in found.items() if form is not None}

    @property
    def list_fields(self) -> frozenset[str]:
        """Fields that hold several texts."""
        return frozenset(name for name, one in self.request.model_fields.items() if get_origin(one.annotation) is tuple)

    def form(self) -> dict[str, Any]:
        """What the page has to know to ask."""
        return {
            "task": self.verb,
            "name": self.words.tab or self.verb.capitalize(),
            "pictured": self.pictured,
            "explains": self.explains,
            "fields": [self._field(name, form) for name, form in self.forms.items() if form.label],
        }

    def _field(self, name: str, form: Form) -> dict[str, Any]:
        schema = self.request.model_json_schema()["properties"][name]
        value: Mapping[str, Any] = next(one for one in schema.get("anyOf", [schema]) if one["type"] != "null")
        kind = {"boolean": "checkbox", "integer": "number", "number": "number", "array": "lines"}.get(value["type"])
        return {
            "name": name,
            "label": form.label,
            "type": kind or "text",
            "hint": form.hint,
            "more": form.more,
            "wanted": self.request.model_fields[name].is_required(),
            "min": value.get("minimum"),
            "max": value.get("maximum"),
            "value": schema.get("default") if kind == "number" and not form.more else None,
        }

    def build_message(self, answer: Any, asked: TaskRequest, picture: str) -> TaskAnswer:
        """The message of an answer."""
        if self.message is not None:
            return self.message(answer, asked, picture)
        told: TaskAnswer = derive(answer, picture=picture)
        return told

    def build_view(self, asked: TaskRequest, told: Any) -> PageView:
        """A message as the page shows it."""
        if self.view is not None:
            return self.view(asked, told)
        assert self.lines is not None
        return PageView(summary=" ".join(self.lines(told, False)), verdicts=tuple(self.lines(told, True)))


def seed_sampling(asked: TaskRequest) -> None:
    """Set the seed of what a request draws by chance, where it has one."""
    if (seed := getattr(asked, "seed", None)) is not None:
        torch.manual_seed(seed)


def require_text(what: str, text: str, example: str) -> None:
    """Raises ServingError for a text that is empty."""
    if not text.strip():
        raise ServingError(f"{what} is empty; write it in words, such as {example!r}")


def percent(share: float) -> str:
    return f"{100 * share:.{0 if share > 0.1 else 1}f} %"


def _region(regions: Regions, row: int, class_names: Sequence[str]) -> Region:
    x1, y1, x2, y2 = (max(0.0, min(1.0, end)) for end in regions.boxes[row].tolist())
    kind = None if regions.classes is None or not class_names else class_names[int(regions.classes[row].argmax())]
    return Region(box=pixel_box((x1, y1, x2, y2), regions.size), label=kind, score=float(regions.scores[row]))


def pixel_box(box: Sequence[float], size: tuple[int, int]) -> PixelBox:
    """COCO's left, top, width, height of corners (fractions) in a picture of this size."""
    (x1, y1, x2, y2), (width, height) = box, size
    left, top = round(x1 * width), round(y1 * height)
    return left, top, round(x2 * width) - left, round(y2 * height) - top
