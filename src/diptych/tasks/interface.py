"""The user interface of a task: JSON requests and responses, and its texts on the command line, page and model card."""

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
from diptych.tasks.run import predict_records

Text = Annotated[str, Field(min_length=1, max_length=500)]
Texts = Annotated[tuple[Text, ...], Field(max_length=16, fail_fast=True)]  # an error names one wrong item
PixelBox = tuple[int, int, int, int]  # COCO's left, top, width, height


class Message(BaseModel):
    """Base class of JSON messages: the bodies of HTTP requests and responses, and the lines that `--json` prints."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def line(self) -> str:
        """Return the message as one line of JSON, without the fields that are None."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=False)


class TaskRequest(Message):
    """Base class of a task's request about one image. A task adds its fields, each with a `Form`.

    A field `seed` seeds the sampling. A field `explain` requests the `explanation` of the answer.
    """

    model: str | None = Field(default=None, description="A name from /v1/models; default: the first that can.")


class TaskAnswer(Message):
    """Base class of a task's answer about one image. Some tasks add `shown` (a file) and `explanation`."""

    picture: str = Field(description="The image's name, as it was given.")
    precision: Precision | None = Field(default=None, description="Precision in which the model computed the answer.")
    familiar: bool | None = Field(
        default=None, description="False: the picture is unlike what this model was trained on. Absent: not known."
    )


class Region(Message):
    """One region of an explanation."""

    box: PixelBox
    label: str | None = Field(description="Class that the detector predicts.")
    score: float = Field(description="The detector's confidence, 0 to 1.")


class Explanation(Message):
    """Influence of regions on words. `weights[word][region]`: nats of log-probability lost without the region."""

    width: int
    height: int
    words: tuple[str, ...]
    regions: tuple[Region, ...]
    weights: tuple[tuple[float, ...], ...]


class ShareTable(Message):
    """A table of texts and their probabilities."""

    title: str
    rows: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, title: str, texts: Sequence[str], shares: Sequence[float]) -> ShareTable:
        return cls(title=title, rows=tuple(zip(texts, shares, strict=True)))


class PageView(Message):
    """An answer as the page shows it, from top to bottom. `summary` is its line in the list of earlier answers."""

    summary: str
    words: str | None = None  # text whose words and regions highlight each other, if there is an explanation
    explanation: Explanation | None = None
    box: PixelBox | None = None  # drawn on the image
    verdicts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    tables: tuple[ShareTable, ...] = ()
    sheet: tuple[tuple[str, float], ...] = ()  # ids and scores of retrieved images
    answer: dict[str, Any] = {}  # the message that the view shows


@dataclass(frozen=True)
class Form:
    """The input of a request's field: a form field on the page, an argument or option on the command line."""

    label: str = ""  # on the page; empty: the page omits the field
    hint: str = ""  # an example, on the page
    more: bool = False  # on the page, in the folded part below the other fields
    argument: str = ""  # name of the command-line argument; empty: the field is an option
    each: bool = False  # the argument repeats; each value becomes a request
    option: str = ""  # name of the option, if it differs from the field's
    help: str = ""  # on the command line; default: the field's description


@dataclass(frozen=True)
class TaskModel:
    """An open model, with what a task needs to predict with it."""

    model: Any
    system: str
    tokens: Tokens
    decoding: DecodingOptions  # from the model's recipe
    class_names: tuple[str, ...]  # classes of its detector
    build: Callable[[], Task]  # the task, configured by its recipe; raises ServingError if the model has not learnt it

    def ask(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """Return the task's prediction for each query of each record, in order."""
        return predict_records(self.build(), self.model, records)

    def with_objects(self, record: Record, texts: Sequence[str]) -> Record:
        """Return the record with the objects that tags such as [0] refer to: its own, or else one per region.

        Raises ServingError if a text has a tag without an object.
        """
        named = replace(record, objects=record.objects or self._detected(record))
        for text in texts:
            if over := [tag for tag in tags(text) if tag >= len(named.objects)]:
                there = ", ".join(f"[{number}] {thing.kind}" for number, thing in enumerate(named.objects)) or "none"
                raise ServingError(
                    f"“{text}” refers to [{over[0]}], but the objects of {record.key} are {there}; refer to one of them"
                )
        return named

    def _detected(self, record: Record) -> tuple[Object, ...]:
        """Return the regions of a record as objects of their predicted classes."""
        assert record.regions is not None
        boxes, classes = record.regions.boxes.tolist(), record.regions.classes
        known = classes.argmax(1).tolist() if classes is not None and self.class_names else [None] * len(boxes)
        kinds = ["thing" if number is None else self.class_names[number] for number in known]
        return tuple(Object(kind, (x1, y1, x2, y2)) for kind, (x1, y1, x2, y2) in zip(kinds, boxes, strict=True))

    def precision(self, samples: int) -> Precision:
        """Return the precision in which a batch of this size is computed."""
        return precision_of(self.model, samples)


@dataclass(frozen=True)
class GroundedText:
    """A caption or an answer, with the regions that it was predicted from."""

    text: str
    score: float  # log-probability of a caption; probability of an answer
    precision: Precision  # of the computation
    record: Record
    words: tuple[str, ...]  # of a caption; an answer counts as one word
    weigh: Callable[[], Tensor] = field(repr=False, compare=False)
    others: tuple[tuple[str, float], ...] = ()  # less likely captions or answers, with scores
    class_names: tuple[str, ...] = ()  # classes of the detector

    @property
    def regions(self) -> Regions:
        assert self.record.regions is not None
        return self.record.regions

    @cached_property
    def weights(self) -> Float[Tensor, "W R"]:
        """The influence of each region on each word: nats of log-probability that the word loses without the region.

        Regions that cover each other are removed together and have the same weight.
        """
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
    """Texts about a task on a model card and on the page."""

    does: str  # on a card, after "It": "answers questions about an image"
    example: str  # on a card, a line of Python that uses the opened `model`
    tab: str = ""  # on the page; default: the verb
    pipeline: str | None = None  # the task's name on the hub
    limit: Callable[[Task], str] | None = None  # on a card, a sentence on what the model cannot do


@dataclass(frozen=True)
class TaskInterface:
    """A task's user interface. `diptych VERB`, `POST /v1/VERB`, the page's form and part of the card derive from it."""

    verb: str
    help: str  # a sentence
    words: InterfaceWords
    request: type[TaskRequest]
    response: type[Message]  # a TaskAnswer, unless the task searches a gallery of images
    # Predict answers to requests about records with regions, in one batch. None: serving searches its gallery.
    answer: Callable[[TaskModel, Sequence[tuple[Record, Any]]], Sequence[Any]] | None = None
    # Raise RecipeError for a request that a model cannot follow, before an image is opened.
    check: Callable[[TaskModel, Any], object] | None = None
    # Build the message from an answer, its request and the image's name. None: answers already are messages.
    message: Callable[[Any, Any, str], TaskAnswer] | None = None
    lines: Callable[[Any, bool], Sequence[str]] | None = None  # of a message, on a terminal; True for a single request
    view: Callable[[Any, Any], PageView] | None = None  # of a request and its message; default: `lines` as verdicts
    # True if the model offers this task. The second argument is its recipe's task; None: an imported checkpoint.
    # Default: offered if the model has learnt the task.
    offered: Callable[[Any, str | None], bool] | None = None
    alike: Callable[[Any], object] = lambda _: None  # requests with equal keys share a batch
    programs: Literal["captions", "answers"] | None = None  # program that `diptych export` writes

    @property
    def pictured(self) -> bool:
        """True if a request is about one image, and not about a gallery."""
        return issubclass(self.response, TaskAnswer)

    @property
    def explains(self) -> bool:
        """True if an answer can have an `Explanation`."""
        return "explain" in self.request.model_fields

    @property
    def forms(self) -> dict[str, Form]:
        """The form of each of the request's fields that has one."""
        fields = self.request.model_fields.items()
        return {name: form for name, field in fields for form in field.metadata if isinstance(form, Form)}

    @property
    def list_fields(self) -> frozenset[str]:
        """Names of the request's fields that hold several texts."""
        return frozenset(name for name, one in self.request.model_fields.items() if get_origin(one.annotation) is tuple)

    def form(self) -> dict[str, Any]:
        """Describe the form as JSON for the page."""
        return {
            "task": self.verb,
            "name": self.words.tab or self.verb.capitalize(),
            "help": self.help,
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

    def build_message(self, answer: Any, request: TaskRequest, picture: str) -> TaskAnswer:
        """Convert an answer to the service's response; `picture` is the image's name."""
        return derive(answer, picture=picture) if self.message is None else self.message(answer, request, picture)

    def build_view(self, request: TaskRequest, message: Any) -> PageView:
        """Build what the web page shows for an answer."""
        if self.view is not None:
            view = self.view(request, message)
        else:
            assert self.lines is not None
            view = PageView(summary=" ".join(self.lines(message, False)), verdicts=tuple(self.lines(message, True)))
        return derive(view, answer=message.model_dump(mode="json", exclude_none=True))


def seed_sampling(request: TaskRequest) -> None:
    """Seed torch with the request's `seed`, if it has one."""
    if (seed := getattr(request, "seed", None)) is not None:
        torch.manual_seed(seed)


def require_text(what: str, text: str, example: str) -> None:
    """Raise ServingError if a text is empty."""
    if not text.strip():
        raise ServingError(f"{what} is empty; write it in words, such as {example!r}")


def percent(share: float) -> str:
    """Format a share from 0 to 1 as a percentage."""
    return f"{100 * share:.{0 if share > 0.1 else 1}f} %"


def _region(regions: Regions, row: int, class_names: Sequence[str]) -> Region:
    x1, y1, x2, y2 = (max(0.0, min(1.0, end)) for end in regions.boxes[row].tolist())
    kind = None if regions.classes is None or not class_names else class_names[int(regions.classes[row].argmax())]
    return Region(box=pixel_box((x1, y1, x2, y2), regions.size), label=kind, score=float(regions.scores[row]))


def pixel_box(box: Sequence[float], size: tuple[int, int]) -> PixelBox:
    """Convert corners (x1, y1, x2, y2, fractions) to COCO's left, top, width, height in an image of `size` pixels."""
    (x1, y1, x2, y2), (width, height) = box, size
    left, top = round(x1 * width), round(y1 * height)
    return left, top, round(x2 * width) - left, round(y2 * height) - top
