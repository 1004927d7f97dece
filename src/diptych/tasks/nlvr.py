"""Statements that are true or false of a picture (NLVR and the like)."""

from typing import Literal

from diptych.core import Vocabulary
from diptych.objectives import ClassifyStatement, Schedule, together
from diptych.objectives.settings import Objectives
from diptych.tasks.spec import Small, TaskSpec
from diptych.tasks.verdicts import Judged, Verdicts

_VERDICTS = Verdicts(
    task="nlvr",
    noun="statements",
    key="true",
    classes={False: "no", True: "yes"},
    judged=lambda record: (Judged(one.key, one.text, one.true) for one in record.statements),
)


class NlvrObjectives(Objectives):
    """Statements that are true or false."""

    kind: Literal["nlvr"] = "nlvr"
    """Kind of objectives."""

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return together(ClassifyStatement())


NLVR = TaskSpec(
    name="nlvr",
    title="Statements",
    learns="judge",
    noun="statements",
    field="statements",
    key="true",
    head="nlvr",
    watched="accuracy",
    shown=("accuracy",),
    build=_VERDICTS.build,
    score=_VERDICTS.score,
    baselines=_VERDICTS.baselines,
    gain=_VERDICTS.gain,
    objectives=(NlvrObjectives,),
    small=Small(NlvrObjectives(), max_words=24),
    questions=_VERDICTS.questions,
    answered=_VERDICTS.answered,
)
