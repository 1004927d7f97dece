"""Visual entailment (SNLI-VE): decide if an image entails a sentence, contradicts it, or does neither (neutral)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from diptych.core import Record, TaskItem, Vocabulary
from diptych.core.entailment import ENTAILMENT as NAME
from diptych.core.entailment import LABELS
from diptych.objectives import ClassifyStatement, Schedule, together
from diptych.objectives.settings import Objectives
from diptych.runtime.verbs import TASK_VERBS
from diptych.tasks import interface
from diptych.tasks.spec import Small, TaskSpec, TaskTraining
from diptych.tasks.verdicts import Judged, Verdicts


def _judged(record: Record) -> Iterator[Judged]:
    for one in record.more.get(NAME, ()):
        label = one.answers[0].strip().lower() if one.answers else None
        yield Judged(one.key, one.text, label if label in LABELS else None)


class EntailmentObjectives(Objectives):
    """Fine-tuning for visual entailment: cross-entropy over entailment, contradiction and neutral."""

    kind: Literal["entailment"] = "entailment"
    """Kind of objectives."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(ClassifyStatement(NAME))


_VERDICTS = Verdicts(
    task=NAME, noun="hypotheses", key="label", classes={label: label for label in LABELS}, judged=_judged
)


class EntailRequest(interface.TaskRequest):
    hypothesis: Annotated[
        interface.Text, interface.Form("Sentence", "a dog sleeps", argument="hypotheses", each=True)
    ] = Field(description="Sentence that the image may entail, such as 'a dog sleeps'.")


class Entailed(interface.TaskAnswer):
    hypothesis: str
    label: str = Field(description="entailment, neutral or contradiction.")
    probability: float = Field(description="Probability of the label.")


def _entail(model: interface.TaskModel, requests: Sequence[tuple[Record, EntailRequest]]) -> list[Entailed]:
    records = []
    for number, (record, request) in enumerate(requests):
        interface.require_text("a sentence", request.hypothesis, "a dog sleeps")
        records.append(replace(record, more={**record.more, NAME: (TaskItem(str(number), request.hypothesis),)}))
    return [
        Entailed(
            picture=record.key,
            precision=model.precision(len(requests)),
            hypothesis=request.hypothesis,
            label=one["label"],
            probability=one["score"],
        )
        for (record, request), one in zip(requests, model.ask(records), strict=True)
    ]


ENTAILMENT = TaskSpec(
    name=NAME,
    title="Entailment",
    learns="infer",
    field=NAME,
    head=NAME,
    build=_VERDICTS.build,
    training=TaskTraining(
        watched="accuracy", objectives=(EntailmentObjectives,), small=Small(EntailmentObjectives(), max_words=24)
    ),
    scoring=_VERDICTS.scoring,
    interface=interface.TaskInterface(
        verb="entail",
        help=TASK_VERBS["entail"].help,
        words=interface.InterfaceWords(
            does="decides whether an image entails a sentence, contradicts it, or leaves it open",
            example='print(model.predict("entailment", "photo.jpg", hypothesis="a dog sleeps").label)',
        ),
        request=EntailRequest,
        response=Entailed,
        answer=_entail,
        lines=lambda answer, alone: [answer.label if alone else f"{answer.label}: {answer.hypothesis}"],
    ),
)
