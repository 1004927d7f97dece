"""Statement verification, as in NLVR: decide if a statement about an image is true."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from diptych.core import Record, Statement, Vocabulary
from diptych.objectives import ClassifyStatement, Schedule, together
from diptych.objectives.settings import Objectives
from diptych.runtime.devices import Precision
from diptych.runtime.verbs import TASK_VERBS
from diptych.tasks import interface
from diptych.tasks.spec import Small, TaskSpec, TaskTraining
from diptych.tasks.verdicts import Judged, Verdicts


def _judged(record: Record) -> Iterator[Judged]:
    return (Judged(one.key, one.text, one.true) for one in record.statements)


# `judged` is a named function, because loader processes pickle it, and a lambda cannot be pickled.
_VERDICTS = Verdicts(task="nlvr", noun="statements", key="true", classes={False: "no", True: "yes"}, judged=_judged)


class NlvrObjectives(Objectives):
    """Fine-tuning for statement verification: cross-entropy over false and true."""

    kind: Literal["nlvr"] = "nlvr"
    """Kind of objectives."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(ClassifyStatement())


class VerifyRequest(interface.TaskRequest):
    statement: Annotated[
        interface.Text, interface.Form("Statement", "there are two dogs", argument="statements", each=True)
    ] = Field(description="Statement about the image, such as 'there are two dogs'.")


class Verified(interface.TaskAnswer):
    statement: str
    true: bool
    probability: float = Field(description="Probability of the verdict.")


@dataclass(frozen=True)
class Verdict:
    """The prediction for a statement: true or false."""

    true: bool
    score: float  # probability of the predicted verdict
    precision: Precision


def verify(model: interface.TaskModel, requests: Sequence[tuple[Record, VerifyRequest]]) -> list[Verdict]:
    """Decide for each request if its statement about the record is true, in one batch."""
    stated = []
    for number, (record, request) in enumerate(requests):
        interface.require_text("a statement", request.statement, "there are two dogs")
        stated.append(replace(record, statements=(Statement(str(number), request.statement, True),)))
    precision = model.precision(len(requests))
    return [Verdict(prediction["true"], prediction["score"], precision) for prediction in model.ask(stated)]


def _message(verdict: Verdict, request: VerifyRequest, picture: str) -> Verified:
    return Verified(
        picture=picture,
        precision=verdict.precision,
        statement=request.statement,
        true=verdict.true,
        probability=verdict.score,
    )


def _lines(message: Verified, alone: bool) -> list[str]:
    word = "true" if message.true else "false"
    return [word if alone else f"{word}: {message.statement}"]


def _view(_: VerifyRequest, message: Verified) -> interface.PageView:
    word = "true" if message.true else "false"
    verdict = f"{word.capitalize()}, {interface.percent(message.probability)} sure"
    return interface.PageView(summary=f"{message.statement}: {word}", verdicts=(verdict,))


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
    interface=interface.TaskInterface(
        verb="verify",
        help=TASK_VERBS["verify"].help,
        words=interface.InterfaceWords(
            does="decides whether a statement is true of an image",
            example='print(model.verify("photo.jpg", ["there are two dogs"])[0].true)',
        ),
        request=VerifyRequest,
        response=Verified,
        answer=verify,
        message=_message,
        lines=_lines,
        view=_view,
    ),
)
