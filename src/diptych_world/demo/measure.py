"""Scores of each arm's predictions on the test split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diptych.core import Record
from diptych.tasks import find_task
from diptych.tasks.scores import Score, Scores
from diptych.tasks.spec import Predicted


@dataclass(frozen=True)
class MeasuredScores:
    """Scores of all arms of all tasks on one split. A gain is the score of the second arm minus that of the first."""

    records: tuple[Record, ...]
    scores: Mapping[str, Mapping[str, Scores]]  # {task: {arm: scores}}
    gains: Mapping[str, Score]


def measure(
    predictions: Mapping[str, Mapping[str, Predicted]], records: Sequence[Record], training: Sequence[Record]
) -> MeasuredScores:
    """Score predictions (task -> arm -> predictions) for `records`. Blind baselines are fitted to `training`."""
    scores: dict[str, dict[str, Scores]] = {}
    gains: dict[str, Score] = {}
    for task, by_arm in predictions.items():
        scoring = find_task(task).scoring
        baselines = scoring.baselines(records, training) if scoring.baselines is not None else None
        scores[task] = {arm: scoring.score(predicted, records, baselines) for arm, predicted in by_arm.items()}
        if scoring.gain is not None and len(by_arm) > 1:
            first, second, *_ = by_arm.values()
            gains[task] = scoring.gain(first, second, records)
    return MeasuredScores(tuple(records), scores, gains)
