"""Scores with how sure they are, and what they are held against. All times 100, as papers print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from diptych.core import Question, Record
from diptych.errors import DataError
from diptych.metrics.bleu import bleu_scores
from diptych.metrics.bootstrap import Interval, bootstrap_interval, paired_interval, rows_by_picture
from diptych.metrics.captions import CaptionItems, caption_items, java_scores
from diptych.metrics.vqa import answer_accuracy, vqa_scores
from diptych.tasks.baselines import (
    BlindAnswers,
    answer_ceiling,
    best_blind_caption,
    caption_ceiling,
    most_frequent_caption,
)


@dataclass(frozen=True)
class Score:
    """One figure. `low` and `high` bound it in 95 of 100 bootstrap draws of the pictures."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    blind: float | None = None  # what is had without looking at the picture
    ceiling: float | None = None  # what one person gets, held against the others
    seeds: tuple[float, ...] = ()  # the single values, where `value` is the mean of several runs

    def to_json(self) -> dict[str, Any]:
        named = {"value": self.value, "interval": [self.low, self.high] if self.low is not None else None}
        named |= {"blind": self.blind, "ceiling": self.ceiling, "seeds": list(self.seeds) or None}
        return {name: value for name, value in named.items() if value is not None}

    @classmethod
    def from_json(cls, name: str, saved: Mapping[str, Any]) -> Score:
        low, high = saved.get("interval", (None, None))
        seeds = tuple(saved.get("seeds", ()))
        return cls(name, saved["value"], low, high, saved.get("blind"), saved.get("ceiling"), seeds)


@dataclass(frozen=True)
class Scores:
    """All figures of one system on one set of pictures."""

    task: str  # "caption" or "vqa"
    scores: tuple[Score, ...]
    pictures: int
    items: int  # captions or answers that were scored
    coverage: float = 1.0  # share of what was asked that was predicted; below 1 it is another set that is scored
    notes: tuple[str, ...] = ()  # how baseline and ceiling were had

    def __getitem__(self, name: str) -> Score:
        return next(score for score in self.scores if score.name == name)

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "scores": {score.name: score.to_json() for score in self.scores},
            "pictures": self.pictures,
            "items": self.items,
            "coverage": self.coverage,
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Scores:
        scores = tuple(Score.from_json(name, score) for name, score in saved["scores"].items())
        counts = saved["pictures"], saved["items"], saved["coverage"]
        return cls(saved["task"], scores, *counts, notes=tuple(saved["notes"]))


def over_seeds(runs: Sequence[Scores]) -> Scores:
    """The mean of several runs of one arm, on the same pictures; the single values stand in for the interval."""
    scores = []
    for score in runs[0].scores:
        values = tuple(run[score.name].value for run in runs)
        scores.append(replace(score, value=float(np.mean(values)), low=None, high=None, seeds=values))
    return replace(runs[0], scores=tuple(scores), notes=(f"means of {len(runs)} runs", *runs[0].notes[1:]))


@dataclass(frozen=True)
class Baselines:
    """What arms on the same pictures are held against, by the name of the score, 0 to 1 (CIDEr 0 to 10)."""

    blind: Mapping[str, float] = field(default_factory=dict)
    ceiling: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def caption_baselines(references: Mapping[str, Sequence[str]], training: Sequence[Sequence[str]] = ()) -> Baselines:
    """`training`: the captions of each training picture; without them there is no blind baseline."""
    blind, ceiling, notes = {}, caption_ceiling(references) or {}, []
    if training:
        best, frequent = best_blind_caption(training), most_frequent_caption(training)
        blind = caption_items(dict.fromkeys(references, best), references).scores()
        cider = caption_items(dict.fromkeys(references, frequent), references).scores()["CIDEr"]
        notes.append(f"blind: the training caption with the best CIDEr on training, said of every picture: “{best}”")
        notes.append(
            f"learnt on {len(training)} pictures; the most frequent training caption, “{frequent}”, gets "
            f"CIDEr {100 * cider:.1f}"
        )
    if ceiling:
        notes.append(
            "ceiling: one reference caption against the other ones of its picture, mean over which one; document "
            "frequencies as for the model, one reference fewer to match"
        )
    return Baselines(blind, ceiling, tuple(notes))


def score_captions(
    predictions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    baselines: Baselines | None = None,
    extra_metrics: Sequence[str] = (),
    coverage: float = 1.0,
) -> Scores:
    """BLEU-1..4, ROUGE-L, CIDEr and what `extra_metrics` names (METEOR, SPICE), beside the baselines."""
    baselines = baselines or Baselines()
    extra = java_scores({key: predictions[key] for key in references}, references, extra_metrics)
    items = caption_items({key: predictions[key] for key in references}, references)
    scores = [_score(n, _interval(n, items), baselines.blind.get(n), baselines.ceiling.get(n)) for n in items.scores()]
    scores += [Score(name, 100 * value) for name, value in extra.items()]
    first = "intervals: 95%, 1,000 bootstrap draws of pictures; document frequencies of CIDEr are those of all pictures"
    return Scores("caption", tuple(scores), len(references), len(references), coverage, (first, *baselines.notes))


def _interval(name: str, items: CaptionItems) -> Interval:
    if name.startswith("BLEU-"):
        order = int(name[-1]) - 1
        return bootstrap_interval(items.bleu, lambda counts: bleu_scores(counts)[..., order])
    return bootstrap_interval(rows_by_picture(items.rouge if name == "ROUGE-L" else items.cider))


def _score(name: str, interval: Interval, blind: float | None, ceiling: float | None) -> Score:
    low, high = 100 * interval.low, 100 * interval.high
    return Score(name, 100 * interval.value, low, high, _times_100(blind), _times_100(ceiling))


def _times_100(bound: float | None) -> float | None:
    return None if bound is None else 100 * bound


def vqa_baselines(records: Sequence[Record], training: Sequence[Question] = ()) -> Baselines:
    """`training`: questions with answers; without them there is no blind baseline."""
    questions = [question for record in records for question in record.questions]
    blind, ceiling, notes = {}, answer_ceiling(questions) or {}, []
    if training:
        taught = BlindAnswers.of(training)
        blind = vqa_scores(taught.answers(questions), questions)
        majority = vqa_scores(taught.majority(questions), questions)["all"]
        by_kind = vqa_scores(taught.majority_by_kind(questions), questions)
        overall = by_kind.pop("all")
        shares = ", ".join(f"{kind} {100 * share:.1f}" for kind, share in by_kind.items())
        notes += [
            "blind: question only, the usual answer in training to the same first words, as many of them as were "
            + ("asked at all" if taught.at_least == 1 else f"asked {taught.at_least} times or more"),
            f"learnt on {len(training)} questions; “{taught.overall}” to every question gets {100 * majority:.1f}; "
            f"one answer to each kind gets {100 * overall:.1f} ({shares})",
        ]
    if ceiling:
        notes.append("ceiling: one person's answer against those of the others who were asked")
    return Baselines(blind, ceiling, tuple(notes))


def score_vqa(
    predictions: Mapping[str, str], records: Sequence[Record], baselines: Baselines | None = None, coverage: float = 1.0
) -> Scores:
    """Accuracy of all questions of the records and by kind of answer, beside `vqa_baselines` of the records.

    Every question must be predicted and have answers.
    """
    baselines = baselines or Baselines()
    questions = [question for record in records for question in record.questions]
    pictures = [record.key for record in records for _ in record.questions]
    if not questions:
        raise DataError("no record has questions to score; choose another split with --split")
    vqa_scores(predictions, questions)  # refuses a question without a prediction or without answers
    right = np.array([answer_accuracy(predictions[question.key], question.answers) for question in questions])
    scores = []
    for kind in ("all", *dict.fromkeys(question.kind for question in questions)):
        chosen = [at for at, question in enumerate(questions) if kind in ("all", question.kind)]
        interval = bootstrap_interval(rows_by_picture(right[chosen], [pictures[at] for at in chosen]))
        name = "accuracy" if kind == "all" else f"accuracy {kind}"
        scores.append(_score(name, interval, baselines.blind.get(kind), baselines.ceiling.get(kind)))
    first = "intervals: 95%, 1,000 bootstrap draws of pictures, each with all its questions"
    return Scores("vqa", tuple(scores), len(set(pictures)), len(questions), coverage, (first, *baselines.notes))


def caption_gain(first: Mapping[str, str], second: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> Score:
    """CIDEr of the second minus the first. Each bootstrap draw takes both on the same pictures."""
    ours, theirs = (
        rows_by_picture(caption_items({key: said[key] for key in references}, references).cider)
        for said in (second, first)
    )
    return _score("CIDEr", paired_interval(ours, theirs), None, None)


def vqa_gain(first: Mapping[str, str], second: Mapping[str, str], records: Sequence[Record]) -> Score:
    """Accuracy of the second minus the first, likewise; a picture is drawn with all its questions."""
    asked = [(record.key, question) for record in records for question in record.questions]
    pictures = [key for key, _ in asked]
    ours, theirs = (
        rows_by_picture([answer_accuracy(said[question.key], question.answers) for _, question in asked], pictures)
        for said in (second, first)
    )
    return _score("accuracy", paired_interval(ours, theirs), None, None)
