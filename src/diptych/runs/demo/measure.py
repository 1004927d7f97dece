"""The report of a comparison: predictions and scores of each arm on the test split, and the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diptych.core import Record
from diptych.runs.demo.page import TITLE, demo_report
from diptych.runs.reports.html import write_report
from diptych.tasks import CAPTION, TaskSpec, find_task
from diptych.tasks.scores import Score, Scores
from diptych.tasks.spec import Predicted
from diptych.tasks.vqa import answered_questions


@dataclass(frozen=True)
class MeasuredScores:
    """Scores of all arms of all tasks on one split. A gain is the second arm minus the first."""

    records: tuple[Record, ...]
    training: tuple[Record, ...]
    predictions: Mapping[str, Mapping[str, Predicted]]  # task -> arm -> predictions
    scores: Mapping[str, Mapping[str, Scores]]
    gains: Mapping[str, Score]


def measure(
    predictions: Mapping[str, Mapping[str, Predicted]], records: Sequence[Record], training: Sequence[Record]
) -> MeasuredScores:
    """Score predictions (task -> arm -> predictions) of `records`. Blind baselines are fitted to `training`."""
    scores: dict[str, dict[str, Scores]] = {}
    gains: dict[str, Score] = {}
    for task, by_arm in predictions.items():
        scoring = find_task(task).scoring
        baselines = scoring.baselines(records, training) if scoring.baselines is not None else None
        scores[task] = {arm: scoring.score(predicted, records, baselines) for arm, predicted in by_arm.items()}
        if scoring.gain is not None and len(by_arm) > 1:
            first, second, *_ = by_arm.values()
            gains[task] = scoring.gain(first, second, records)
    return MeasuredScores(tuple(records), tuple(training), predictions, scores, gains)


def baselines_of(
    task: str, predicted: Predicted, records: Sequence[Record], training: Sequence[Record], scores: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """Return the baseline and ceiling of each score: {score: {"blind": ..., "ceiling": ...}}."""
    measured = measure({task: {"": predicted}}, records, training).scores[task][""]
    return {name: {"blind": measured[name].blind, "ceiling": measured[name].ceiling} for name in scores}


def report_arms(
    out: Path,
    measured: MeasuredScores,
    class_names: Sequence[str],
    runs: Mapping[str, Mapping[str, Path]],
    seconds: Mapping[str, float],
    configuration: Mapping[str, object] | None = None,
    notes: Mapping[str, Mapping[str, str]] | None = None,
    memory_mib: Mapping[str, float] | None = None,
    footer: str = "",
    title: str = TITLE,
) -> Path:
    """Write `out/report.html`. Images show the last arm. `runs`: task, "detector" or "pretrain" -> arm."""
    last = {task: list(by_arm.items())[-1] for task, by_arm in measured.predictions.items()}
    specs = [find_task(task) for task in last]
    answers: dict[str, str] = {}
    for spec in specs:
        if spec.scoring.answered is not None:
            answers |= spec.scoring.answered(last[spec.name][1])
    return write_report(
        out,
        demo_report(
            scores=measured.scores,
            gains=measured.gains,
            notes=notes,
            runs=runs,
            records=[_with_queries(record, specs) for record in measured.records],
            class_names=class_names,
            captions=last[CAPTION.name][1] if CAPTION.name in last else {},
            answers=answers,
            training=answered_questions([_with_queries(record, specs) for record in measured.training]),
            title=title,
            seconds=seconds,
            memory_mib=memory_mib,
            configuration=configuration,
            speaker=" and ".join(dict.fromkeys(f"the arm “{arm}”" for arm, _ in last.values())),
            footer=footer,
        ),
    )


def _with_queries(record: Record, tasks: Sequence[TaskSpec]) -> Record:
    """Add the queries of the tasks to the questions of a record."""
    queries = [spec.scoring.questions for spec in tasks]
    more = [question for query in queries if query is not None for question in query(record)]
    return replace(record, questions=tuple(dict.fromkeys((*record.questions, *more))))
