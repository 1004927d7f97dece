"""Statements that are true or false of a picture (NLVR and the like)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.core import Batch, Question, Record, Sample, Statement, Vocabulary
from diptych.data.store.tokens import Tokens
from diptych.metrics.bootstrap import paired_interval, rows_by_picture
from diptych.objectives import ClassifyStatement, Schedule, together
from diptych.objectives.settings import Objectives
from diptych.runtime.errors import DataError
from diptych.tasks.baselines import BlindAnswers
from diptych.tasks.scores import Baselines, Score, Scores, score_of, share_scores
from diptych.tasks.spec import Small, TaskSpec
from diptych.tasks.vcr import finite

STATEMENT = "statement"  # the kind of a question that stands for one


@dataclass(frozen=True)
class Nlvr:
    tokens: Tokens
    max_words: int = 24

    name = "nlvr"

    def samples(self, record: Record) -> list[Sample]:
        return self.queries(record)

    def queries(self, record: Record) -> list[Sample]:
        return [
            Sample(
                key=statement.key,
                picture=record.key,
                regions=record.regions,
                text=torch.tensor([*self.tokens.encode(statement.text)[: self.max_words], self.tokens.vocabulary.sep]),
                truth={"true": statement.true},
            )
            for statement in record.statements
        ]

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]:
        """Whether it is true, with the probability of what is said."""
        scores = model.heads["nlvr"](model(batch.for_head("nlvr"))).float()
        finite(scores, batch)
        probability, best = scores.softmax(-1).max(-1)
        judged = zip(batch.keys, best.tolist(), probability.tolist(), strict=True)
        return [{"key": key, "true": bool(verdict), "score": score} for key, verdict, score in judged]

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]:
        """Share of the statements that are judged rightly, times 100."""
        right, _ = statement_hits({prediction["key"]: prediction["true"] for prediction in predictions}, records)
        return {"accuracy": 100 * float(right.mean())}


def statement_hits(predicted: dict[str, bool], records: Sequence[Record]) -> tuple[NDArray[np.float64], list[str]]:
    """1 where a verdict is right, for each statement of the records, and its picture."""
    judged = [(record.key, statement) for record in records for statement in record.statements]
    if not judged:
        raise DataError("no record has statements to score; choose another split with --split")
    right = [float(predicted[statement.key] == statement.true) for _, statement in judged]
    return np.array(right), [picture for picture, _ in judged]


def score_nlvr(predicted: Mapping[str, bool], records: Sequence[Record], baselines: Baselines | None = None) -> Scores:
    return share_scores("nlvr", {"accuracy": statement_hits(dict(predicted), records)}, "statements", baselines)


def nlvr_baselines(records: Sequence[Record], training: Sequence[Record] = ()) -> Baselines:
    """Words alone, as for questions: the most frequent answer in training to the same first words."""
    asked = [statement for record in records for statement in record.statements]
    taught = [statement for record in training for statement in record.statements]
    if not asked or not taught:
        return Baselines({"accuracy": 0.5} if asked else {}, {}, ("blind: at random",) if asked else ())
    known = BlindAnswers.of(map(as_question, taught))
    guesses = [known.answer(Question(s.key, s.text, ())) for s in asked]
    right = float(np.mean([one == _word(s.true) for one, s in zip(guesses, asked, strict=True)]))
    majority = float(np.mean([known.overall == _word(s.true) for s in asked]))
    notes = (
        "blind: words only, the most frequent answer in training to the same first words; at random: 50.0",
        f"learnt on {len(taught)} statements; “{known.overall}” to every statement gets {100 * majority:.1f}",
    )
    return Baselines({"accuracy": right}, {}, notes)


def nlvr_gain(first: Mapping[str, bool], second: Mapping[str, bool], records: Sequence[Record]) -> Score:
    """Accuracy of the second minus the first; a bootstrap draw takes both, a picture with all its statements."""
    ours, theirs = (rows_by_picture(*statement_hits(dict(predicted), records)) for predicted in (second, first))
    found = paired_interval(ours, theirs)
    return score_of("accuracy", found)


def as_question(statement: Statement) -> Question:
    """Ten people say yes or no."""
    return Question(f"{statement.key}/{STATEMENT}", statement.text, (_word(statement.true),) * 10, STATEMENT)


def _word(true: bool) -> str:
    return "yes" if true else "no"


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
    build=lambda given: Nlvr(given.tokens, given.max_words),
    score=score_nlvr,
    baselines=nlvr_baselines,
    gain=nlvr_gain,
    objectives=(NlvrObjectives,),
    small=Small(NlvrObjectives(), max_words=24),
    questions=lambda record: map(as_question, record.statements),
    answered=lambda judged: {f"{key}/{STATEMENT}": _word(true) for key, true in judged.items()},
)
