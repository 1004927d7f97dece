"""The user interface of a task: its JSON messages, and its texts for the command line, web page and model card."""

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
# fail_fast: the error names only the first invalid text.
Texts = Annotated[tuple[Text, ...], Field(max_length=16, fail_fast=True)]
PixelBox = tuple[int, int, int, int]  # (left, top, width, height), as in COCO


class Message(BaseModel):
    """Base class of JSON messages: the bodies of HTTP requests and responses, and the lines that `--json` prints."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def line(self) -> str:
        """Return the message as one line of JSON. Fields that are None are omitted."""
        return json.dumps(self.model_dump(exclude_none=True), ensure_ascii=False)


class TaskRequest(Message):
    """Base class of a task's request about one image. A subclass adds the task's fields, each annotated with a `Form`.

    If a subclass has a field `seed`, its value seeds the sampling. If a subclass has a field `explain`, the value True
    adds an `explanation` to the answer.
    """

    model: str | None = Field(default=None, description="A name from /v1/models; default: the first suitable model.")


class TaskAnswer(Message):
    """Base class of a task's answer about one image.

    Some tasks add `shown` (path of a drawn image) and `explanation`.
    """

    picture: str = Field(description="The image's name, as it was given.")
    precision: Precision | None = Field(default=None, description="Precision in which the model computed the answer.")
    familiar: bool | None = Field(
        default=None, description="False: the image is unlike the model's training images. Absent: unknown."
    )
    unread: str | None = Field(
        default=None, description="Words of the request that the model does not know, and texts that it cuts, if any."
    )


class Region(Message):
    """A region in an `Explanation`."""

    box: PixelBox
    label: str | None = Field(description="Class that the detector predicts.")
    score: float = Field(description="The detector's confidence, 0 to 1.")


class Explanation(Message):
    """Influence of regions on words.

    `weights[word][region]` is how much the word's log-probability (nats) falls without the region.
    """

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
    """An answer as the web page shows it, from top to bottom. `summary` is the answer's line in the page's history."""

    summary: str
    words: str | None = None  # a text; in an explanation, its words and the regions of the image highlight each other
    explanation: Explanation | None = None
    box: PixelBox | None = None  # a box that is drawn on the image
    verdicts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    tables: tuple[ShareTable, ...] = ()
    sheet: tuple[tuple[str, float, str | None], ...] = ()  # (id, score, name) of each retrieved image
    answer: dict[str, Any] = {}  # the task's answer as JSON, from which this view was built


@dataclass(frozen=True)
class Form:
    """How users enter a field of a request: in a form of the web page, or as a command-line argument or option."""

    label: str = ""  # the field's label on the page; empty: the field is not on the page
    hint: str = ""  # example of a value, which the page shows
    more: bool = False  # True: the page shows the field only in its folded section of further options
    argument: str = ""  # name of the argument on the command line; empty: the field is an option
    each: bool = False  # True: the argument can be repeated, and each value becomes a request
    option: str = ""  # name of the option on the command line; default: the field's name
    help: str = ""  # help text of the option or argument; default: the field's description


@dataclass(frozen=True)
class TaskModel:
    """A loaded model, with everything that a task needs to predict with it."""

    model: Any
    system: str
    tokens: Tokens
    decoding: DecodingOptions  # default decoding options, from the model's recipe
    class_names: tuple[str, ...]  # names of the classes of the model's detector
    build: Callable[[], Task]  # returns the task; raises ServingError if the model has not learnt it

    def ask(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """Return the task's predictions for the records, in order: one per query, such as a question."""
        return predict_records(self.build(), self.model, records)

    def with_objects(self, record: Record, texts: Sequence[str]) -> Record:
        """Return the record with objects for tags such as [0] in `texts`.

        A record without objects gets one object per region.

        Raises ServingError if a tag's number is too large.
        """
        named = replace(record, objects=record.objects or self._detected(record))
        for text in texts:
            if over := [tag for tag in tags(text) if tag >= len(named.objects)]:
                there = ", ".join(f"[{number}] {thing.kind}" for number, thing in enumerate(named.objects)) or "none"
                raise ServingError(
                    f"“{text}” refers to [{over[0]}], but {record.key} has these objects: {there}; change or remove it"
                )
        return named

    def _detected(self, record: Record) -> tuple[Object, ...]:
        """Convert the record's regions to objects, named by their predicted class."""
        assert record.regions is not None
        boxes, classes = record.regions.boxes.tolist(), record.regions.classes
        known = classes.argmax(1).tolist() if classes is not None and self.class_names else [None] * len(boxes)
        kinds = ["thing" if number is None else self.class_names[number] for number in known]
        return tuple(Object(kind, (x1, y1, x2, y2)) for kind, (x1, y1, x2, y2) in zip(kinds, boxes, strict=True))

    def precision(self, samples: int) -> Precision:
        """Return the precision of a batch with `samples` samples, such as fp32 or bf16."""
        return precision_of(self.model, samples)


@dataclass(frozen=True)
class GroundedText:
    """A predicted caption or answer, with the record it was predicted from."""

    text: str
    score: float  # log-probability of a caption, or probability of an answer
    precision: Precision  # precision in which the model computed, such as bf16
    record: Record
    words: tuple[str, ...]  # words of a caption; an answer is stored as a single word
    weigh: Callable[[], Tensor] = field(repr=False, compare=False)
    others: tuple[tuple[str, float], ...] = ()  # less probable captions or answers, each with its score
    class_names: tuple[str, ...] = ()  # names of the detector's classes
    sure: bool | None = None  # False: an answer more likely wrong than right; None: not measured

    @property
    def regions(self) -> Regions:
        assert self.record.regions is not None
        return self.record.regions

    @cached_property
    def weights(self) -> Float[Tensor, "W R"]:
        """The influence of regions on words: how much a word's log-probability (nats) falls without a region.

        Overlapping regions are removed together and get the same weight.
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
    """Texts about a task for model cards and the web page."""

    does: str  # completes the sentence "It ..." on a model card: "answers questions about an image"
    example: str  # a line of Python on a model card, which uses a loaded `model`
    tab: str = ""  # name of the task's tab on the web page; default: the verb
    pipeline: str | None = None  # `pipeline_tag` on the Hugging Face Hub, such as "image-to-text"
    limit: Callable[[Task], str] | None = None  # returns a sentence for a model card about a limitation of the task


@dataclass(frozen=True)
class TaskInterface:
    """A task's user interface.

    It defines `diptych VERB`, `POST /v1/VERB`, a form of the web page and lines of the model card.
    """

    verb: str
    help: str  # one sentence: the help text of the task's command
    words: InterfaceWords
    request: type[TaskRequest]
    response: type[Message]  # type of the answer: a subclass of TaskAnswer, unless the task searches a gallery
    # Answers a batch of requests, each with its record. None: the service searches its gallery instead.
    answer: Callable[[TaskModel, Sequence[tuple[Record, Any]]], Sequence[Any]] | None = None
    # Called before images are opened; raises RecipeError for a request that the model cannot fulfil.
    check: Callable[[TaskModel, Any], object] | None = None
    # Builds the message from (answer, request, image's name). None: answers are messages already.
    message: Callable[[Any, Any, str], TaskAnswer] | None = None
    # (message, True if it is the only message) -> lines that the command prints.
    lines: Callable[[Any, bool], Sequence[str]] | None = None
    view: Callable[[Any, Any], PageView] | None = None  # (request, message) -> view; default: a view of `lines`
    # (model, task of its recipe) -> True if the model offers this task. The recipe's task is None for an imported
    # model. Default: True if the model has a recipe and has learnt the task.
    offered: Callable[[Any, str | None], bool] | None = None
    alike: Callable[[Any], object] = lambda _: None  # request -> key; only requests with equal keys share a batch
    # Output of the program that `diptych export` writes for this task. None: the task cannot be exported.
    programs: Literal["captions", "answers"] | None = None

    @property
    def pictured(self) -> bool:
        """True if a request is about one image; False if it searches a gallery."""
        return issubclass(self.response, TaskAnswer)

    @property
    def explains(self) -> bool:
        """True if an answer can have an `Explanation`."""
        return "explain" in self.request.model_fields

    @property
    def forms(self) -> dict[str, Form]:
        """The `Form` of each field of the request, by the field's name. Fields without a `Form` are left out."""
        fields = self.request.model_fields.items()
        return {name: form for name, field in fields for form in field.metadata if isinstance(form, Form)}

    @property
    def list_fields(self) -> frozenset[str]:
        """The names of the request's fields that hold a list of texts."""
        return frozenset(name for name, one in self.request.model_fields.items() if get_origin(one.annotation) is tuple)

    def texts(self, request: TaskRequest) -> list[str]:
        """Return the texts of a request that the model reads, such as a question."""
        values = [getattr(request, name) for name in self.forms]
        listed = [(one,) if isinstance(one, str) else one for one in values]
        return [text for one in listed if isinstance(one, tuple) for text in one]

    def form(self) -> dict[str, Any]:
        """Return a JSON description of the form, which the web page renders."""
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
        """Convert an answer to a JSON message. `picture` is the image's name."""
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
    """Seed torch with the request's `seed`, if the request has this field and it is not None."""
    if (seed := getattr(request, "seed", None)) is not None:
        torch.manual_seed(seed)


def require_text(what: str, text: str, example: str) -> None:
    """Raise ServingError if `text` is empty.

    `what` names the text in the message, such as "a question"; `example` shows a valid text.
    """
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
    """Convert a box (x1, y1, x2, y2), in fractions of the image, to (left, top, width, height) in pixels.

    `size`: width and height of the image.
    """
    (x1, y1, x2, y2), (width, height) = box, size
    left, top = round(x1 * width), round(y1 * height)
    return left, top, round(x2 * width) - left, round(y2 * height) - top
