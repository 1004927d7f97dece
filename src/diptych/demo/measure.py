"""The report of a comparison: what each arm says of the test split, its scores, and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diptych.core import Question, Record
from diptych.demo.page import TITLE, demo_report
from diptych.reports.html import write_report
from diptych.tasks.decisions import STATEMENT, as_question, nlvr_baselines, nlvr_gain, score_nlvr
from diptych.tasks.scores import (
    Baselines,
    Score,
    Scores,
    caption_baselines,
    caption_gain,
    score_captions,
    score_vqa,
    vqa_baselines,
    vqa_gain,
)

Predictions = dict[str, Any]  # captions by record, answers by question, verdicts by statement
SPOKEN = {"caption": "caption", "vqa": "answer", "nlvr": "true"}  # what a task's predictions call it


@dataclass(frozen=True)
class Measured:
    """All arms of all tasks on one split. The gain is that of the last arm over the first."""

    records: tuple[Record, ...]
    training: tuple[Record, ...]
    said: Mapping[str, Mapping[str, Predictions]]  # task -> arm -> what it said
    scores: Mapping[str, Mapping[str, Scores]]
    gains: Mapping[str, Score]


def said_by(task: str, predictions: Sequence[Mapping[str, Any]]) -> Predictions:
    """The words of a task's predictions, by key."""
    return {told["key"]: told[SPOKEN[task]] for told in predictions}


def measure(
    said: Mapping[str, Mapping[str, Predictions]], records: Sequence[Record], training: Sequence[Record]
) -> Measured:
    """`said`: task -> arm -> words. `records`: what was asked about; `training` teaches the blind baselines."""
    baselines = {task: _bounds(task, records, training) for task in said}
    scores = {
        task: {arm: _score(task, told, records, baselines[task]) for arm, told in by_arm.items()}
        for task, by_arm in said.items()
    }
    gains = {task: _gain(task, list(by_arm.values()), records) for task, by_arm in said.items() if len(by_arm) > 1}
    return Measured(tuple(records), tuple(training), said, scores, gains)


def baselines_of(
    task: str, said: Predictions, records: Sequence[Record], training: Sequence[Record], scores: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """What each score is held against: {score: {"blind": ..., "ceiling": ...}}."""
    measured = _score(task, said, records, _bounds(task, records, training))
    return {name: {"blind": measured[name].blind, "ceiling": measured[name].ceiling} for name in scores}


def report_arms(
    out: Path,
    measured: Measured,
    class_names: Sequence[str],
    runs: Mapping[str, Mapping[str, Path]],
    seconds: Mapping[str, float],
    configuration: Mapping[str, object] | None = None,
    notes: Mapping[str, Mapping[str, str]] | None = None,
    memory_mib: Mapping[str, float] | None = None,
    footer: str = "",
    title: str = TITLE,
) -> Path:
    """Writes `out/report.html`. Pictures show what the last arm says. `runs`: task, "detector" or "pretrain" -> arm."""
    last = {task: list(by_arm.items())[-1] for task, by_arm in measured.said.items()}
    judged = last["nlvr"][1] if "nlvr" in last else {}
    answers = last["vqa"][1] if "vqa" in last else {}
    return write_report(
        out,
        demo_report(
            scores=measured.scores,
            gains=measured.gains,
            notes=notes,
            runs=runs,
            records=[_asked(record, judged) for record in measured.records],
            class_names=class_names,
            captions=last["caption"][1] if "caption" in last else {},
            answers=answers | {f"{key}/{STATEMENT}": "yes" if true else "no" for key, true in judged.items()},
            training=_questions([_asked(record, judged) for record in measured.training]),
            title=title,
            seconds=seconds,
            memory_mib=memory_mib,
            configuration=configuration,
            speaker=" and ".join(dict.fromkeys(f"the arm “{arm}”" for arm, _ in last.values())),
            footer=footer,
        ),
    )


def _asked(record: Record, judged: Predictions) -> Record:
    """Statements stand among the questions, where they were judged."""
    if not judged:
        return record
    return replace(record, questions=(*record.questions, *map(as_question, record.statements)))


def _bounds(task: str, records: Sequence[Record], training: Sequence[Record]) -> Baselines:
    if task == "nlvr":
        return nlvr_baselines(records, training)
    if task == "vqa":
        return vqa_baselines(records, _questions(training))
    return caption_baselines(_references(records), [record.captions for record in training if record.captions])


def _questions(records: Sequence[Record]) -> list[Question]:
    return [question for record in records for question in record.questions if question.answers]


def _references(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    return {record.key: record.captions for record in records if record.captions}


def _score(task: str, said: Predictions, records: Sequence[Record], baselines: Baselines) -> Scores:
    if task == "nlvr":
        return score_nlvr(said, records, baselines)
    return (
        score_vqa(said, records, baselines) if task == "vqa" else score_captions(said, _references(records), baselines)
    )


def _gain(task: str, arms: list[Predictions], records: Sequence[Record]) -> Score:
    if task == "nlvr":
        return nlvr_gain(arms[0], arms[-1], records)
    if task == "vqa":
        return vqa_gain(arms[0], arms[-1], records)
    return caption_gain(arms[0], arms[-1], _references(records))
