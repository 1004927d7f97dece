"""Statements that are true or false of a picture (NLVR and the like)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from diptych.core import Record, Statement, Vocabulary
from diptych.objectives import ClassifyStatement, Schedule, together
from diptych.objectives.settings import Objectives
from diptych.runtime.devices import Precision
from diptych.tasks.interface import (
    Form,
    InterfaceWords,
    PageView,
    TaskAnswer,
    TaskInterface,
    TaskModel,
    TaskRequest,
    Text,
    percent,
    require_text,
)
from diptych.tasks.spec import Small, TaskSpec, TaskTraining
from diptych.tasks.verdicts import Judged, Verdicts


def _judged(record: Record) -> Iterator[Judged]:
    return (Judged(one.key, one.text, one.true) for one in record.statements)


# Sent to loading processes, so `judged` is no lambda.
_VERDICTS = Verdicts(task="nlvr", noun="statements", key="true", classes={False: "no", True: "yes"}, judged=_judged)


class NlvrObjectives(Objectives):
    """Statements that are true or false."""

    kind: Literal["nlvr"] = "nlvr"
    """Kind of objectives."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(ClassifyStatement())


class VerifyRequest(TaskRequest):
    statement: Annotated[
        Text,
        Form(
            "Statement",
            "there are two dogs",
            argument="statements",
            each=True,
            help="Statements about the picture, such as 'there are two dogs'.",
        ),
    ] = Field(description="Such as 'there are two dogs'.")


class Verified(TaskAnswer):
    statement: str
    true: bool
    probability: float = Field(description="Of the verdict.")


@dataclass(frozen=True)
class Verdict:
    """Whether a statement is true of a picture."""

    true: bool
    score: float  # probability of the verdict
    precision: Precision


def verify(model: TaskModel, asked: Sequence[tuple[Record, VerifyRequest]]) -> list[Verdict]:
    """Whether each statement is true of its record, all in one pass."""
    for _, request in asked:
        require_text("a statement", request.statement, "there are two dogs")
    stated = [
        replace(record, statements=(Statement(str(number), request.statement, True),))
        for number, (record, request) in enumerate(asked)
    ]
    precision = model.precision(len(asked))
    return [Verdict(prediction["true"], prediction["score"], precision) for prediction in model.ask(stated)]


def _message(verdict: Verdict, asked: VerifyRequest, picture: str) -> Verified:
    return Verified(
        picture=picture,
        precision=verdict.precision,
        statement=asked.statement,
        true=verdict.true,
        probability=verdict.score,
    )


def _lines(told: Verified, alone: bool) -> list[str]:
    word = "true" if told.true else "false"
    return [word if alone else f"{word}: {told.statement}"]


def _view(_: VerifyRequest, told: Verified) -> PageView:
    word = "true" if told.true else "false"
    verdict = f"{word.capitalize()}, {percent(told.probability)} sure"
    return PageView(summary=f"{told.statement}: {word}", verdicts=(verdict,))


NLVR = TaskSpec(
    name="nlvr",
    title="Statements",
    learns="judge",
    field="statements",
    head="nlvr",
    build=_VERDICTS.build,
    training=TaskTraining(
        watched="accuracy", objectives=(NlvrObjectives,), small=Small(NlvrObjectives(), max_words=24)
    ),
    scoring=_VERDICTS.scoring,
    interface=TaskInterface(
        verb="verify",
        help="Decide whether a statement is true of a picture.",
        words=InterfaceWords(
            does="decides whether a statement is true of a picture",
            example='print(model.verify("photo.jpg", ["there are two dogs"])[0].true)',
            tab="True or false",
        ),
        request=VerifyRequest,
        response=Verified,
        answer=verify,
        message=_message,
        lines=_lines,
        view=_view,
    ),
)
