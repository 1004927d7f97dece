"""Visual entailment: whether a picture shows what a sentence says, denies it, or leaves it open (SNLI-VE)."""

from collections.abc import Iterator
from typing import Literal

from diptych.core import Record, Vocabulary
from diptych.data.formats.snli_ve import ENTAILMENT as NAME
from diptych.data.formats.snli_ve import LABELS
from diptych.objectives import ClassifyStatement, Schedule, together
from diptych.objectives.settings import Objectives
from diptych.tasks.spec import Small, TaskSpec
from diptych.tasks.verdicts import Judged, Verdicts


def _judged(record: Record) -> Iterator[Judged]:
    for one in record.more.get(NAME, ()):
        label = one.answers[0] if one.answers else None
        yield Judged(one.key, one.text, label if label in LABELS else None)


class EntailmentObjectives(Objectives):
    """Sentences that a picture entails, contradicts or leaves open."""

    kind: Literal["entailment"] = "entailment"
    """Kind of objectives."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(ClassifyStatement(NAME))


_VERDICTS = Verdicts(
    task=NAME, noun="hypotheses", key="label", classes={label: label for label in LABELS}, judged=_judged
)
ENTAILMENT = TaskSpec(
    name=NAME,
    title="Entailment",
    learns="infer",
    noun="hypotheses",
    field=NAME,
    key="label",
    head=NAME,
    watched="accuracy",
    shown=("accuracy",),
    build=_VERDICTS.build,
    score=_VERDICTS.score,
    baselines=_VERDICTS.baselines,
    gain=_VERDICTS.gain,
    objectives=(EntailmentObjectives,),
    small=Small(EntailmentObjectives(), max_words=24),
    questions=_VERDICTS.questions,
    answered=_VERDICTS.answered,
)
