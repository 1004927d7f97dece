"""One picture, and a decision about it: where something is, which text is right, whether a statement is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from diptych.core import Choices, Expression, Object, Record, Statement, Task, tags
from diptych.runs.folder import ModelFolder
from diptych.runs.tasks import task_of
from diptych.runtime.devices import Precision, precision_of
from diptych.runtime.errors import RecipeError, ServingError
from diptych.tasks import NLVR, REFERRING, VCR
from diptych.tasks.run import ask

WHOLE = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class Found:
    """A region: its corners as fractions, and the probability that it is the one."""

    box: tuple[float, float, float, float]
    score: float
    region: int
    record: Record
    precision: Precision

    def pixels(self, width: int, height: int) -> tuple[int, int, int, int]:
        """COCO's left, top, width, height in a picture of this size."""
        x1, y1, x2, y2 = self.box
        left, top = round(x1 * width), round(y1 * height)
        return left, top, round(x2 * width) - left, round(y2 * height) - top


@dataclass(frozen=True)
class Chosen:
    """The number of the best answer, and of the best rationale for it; the shares that all of them have."""

    answer: int
    answers: tuple[float, ...]
    precision: Precision
    rationale: int | None = None
    rationales: tuple[float, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Whether a statement is true of a picture."""

    true: bool
    score: float  # probability of what is said
    precision: Precision


def ground(folder: ModelFolder, asked: Sequence[tuple[Record, str]]) -> list[Found]:
    """The region that each expression means in its record, all in one pass."""
    for _, expression in asked:
        _in_words("an expression", expression)
    expressions = [
        replace(record, expressions=(Expression(str(number), text, WHOLE),))
        for number, (record, text) in enumerate(asked)
    ]
    predicted = ask(learnt_task(folder, REFERRING.name), folder.model, expressions)
    precision = precision_of(folder.model, len(asked))
    return [_found(record, one, precision) for (record, _), one in zip(asked, predicted, strict=True)]


def _found(record: Record, prediction: dict[str, Any], precision: Precision) -> Found:
    if prediction["box"] is None:
        raise ServingError(f"the detector saw nothing in {record.key}, so nothing can be pointed at; give another one")
    x1, y1, x2, y2 = prediction["box"]
    return Found((x1, y1, x2, y2), prediction["score"], prediction["region"], record, precision)


def choose(
    folder: ModelFolder, record: Record, question: str, answers: Sequence[str], rationales: Sequence[str] = ()
) -> Chosen:
    for text in (question, *answers, *rationales):
        _in_words("a question, answer or rationale", text)
    if len(answers) < 2 or len(rationales) == 1:
        raise ServingError(
            f"{len(answers)} answers and {len(rationales)} rationales leave no choice; give at least two answers, and "
            "two rationales or none"
        )
    record = replace(record, objects=record.objects or _seen(record, folder.contract.class_names))
    _all_named(record, (question, *answers, *rationales))
    task = learnt_task(folder, VCR.name)
    of_answers = _shares(folder, task, record, Choices("0", question, tuple(answers), -1), "answer")
    best, precision = of_answers.index(max(of_answers)), precision_of(folder.model, len(answers))
    if not rationales:
        return Chosen(best, of_answers, precision)
    reasoned = Choices("0", question, tuple(answers), best, tuple(rationales))
    of_rationales = _shares(folder, task, record, reasoned, "rationale")
    return Chosen(best, of_answers, precision, of_rationales.index(max(of_rationales)), of_rationales)


def verify(folder: ModelFolder, asked: Sequence[tuple[Record, str]]) -> list[Verdict]:
    """Whether each statement is true of its record, all in one pass."""
    for _, statement in asked:
        _in_words("a statement", statement)
    stated = [
        replace(record, statements=(Statement(str(number), text, True),)) for number, (record, text) in enumerate(asked)
    ]
    judged, precision = (
        ask(learnt_task(folder, NLVR.name), folder.model, stated),
        precision_of(folder.model, len(asked)),
    )
    return [Verdict(prediction["true"], prediction["score"], precision) for prediction in judged]


def learnt_task(folder: ModelFolder, name: str) -> Task:
    """Raises ServingError where the model has not learnt it."""
    try:
        return task_of(folder, name)
    except RecipeError as error:
        raise ServingError(str(error)) from error


def _shares(folder: ModelFolder, task: Task, record: Record, choices: Choices, part: str) -> tuple[float, ...]:
    predicted = ask(task, folder.model, [replace(record, choices=(choices,))])
    scores = [prediction["score"] for prediction in predicted if prediction["group"] == f"{choices.key}/{part}"]
    return tuple(torch.tensor(scores).softmax(0).tolist())


def _seen(record: Record, class_names: Sequence[str]) -> tuple[Object, ...]:
    """The regions as objects, by what the detector takes them for."""
    assert record.regions is not None
    boxes, classes = record.regions.boxes.tolist(), record.regions.classes
    known = classes.argmax(1).tolist() if classes is not None and class_names else [None] * len(boxes)
    kinds = ["thing" if number is None else class_names[number] for number in known]
    return tuple(Object(kind, (x1, y1, x2, y2)) for kind, (x1, y1, x2, y2) in zip(kinds, boxes, strict=True))


def _all_named(record: Record, texts: Sequence[str]) -> None:
    for text in texts:
        if over := [tag for tag in tags(text) if tag >= len(record.objects)]:
            there = ", ".join(f"[{number}] {thing.kind}" for number, thing in enumerate(record.objects)) or "none"
            raise ServingError(f"“{text}” names [{over[0]}], and in {record.key} are seen: {there}; name one of them")


def _in_words(what: str, text: str) -> None:
    if not text.strip():
        raise ServingError(f"{what} is empty; say it in words, such as 'the dog left of the bench'")
