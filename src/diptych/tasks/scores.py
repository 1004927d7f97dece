"""Scores with how sure they are, and what they are held against. All times 100, as papers print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diptych.core import Question, Record
from diptych.errors import DataError
from diptych.metrics.bleu import bleu_scores
from diptych.metrics.bootstrap import Interval, bootstrap_interval, rows_by_picture
from diptych.metrics.captions import CaptionItems, caption_items, java_scores
from diptych.metrics.vqa import answer_accuracy, vqa_scores
from diptych.tasks.bounds import BlindAnswers, answer_ceiling, best_blind_caption, caption_ceiling


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


def score_captions(
    predictions: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    training: Sequence[Sequence[str]] = (),
    also: Sequence[str] = (),
    coverage: float = 1.0,
) -> Scores:
    """BLEU-1..4, ROUGE-L, CIDEr and what `also` names (METEOR, SPICE). `training`: the captions of each picture."""
    extra = java_scores({key: predictions[key] for key in references}, references, also)
    items = caption_items({key: predictions[key] for key in references}, references)
    notes = [
        "intervals: 95%, 1,000 bootstrap draws of pictures; document frequencies of CIDEr are those of all pictures"
    ]
    blind, ceiling = {}, caption_ceiling(references)
    if training:
        said = best_blind_caption(training)
        blind = caption_items(dict.fromkeys(references, said), references).scores()
        notes.append(f"blind: the training caption with the best CIDEr on training, said of every picture: “{said}”")
    if ceiling:
        notes.append(
            "ceiling: one reference caption against the other ones of its picture, mean over which one; document "
            "frequencies as for the model, one reference fewer to match"
        )
    scores = [_caption_score(n, _interval(n, items), blind, ceiling or {}) for n in items.scores()]
    scores += [Score(name, 100 * value) for name, value in extra.items()]
    return Scores("caption", tuple(scores), len(references), len(references), coverage, tuple(notes))


def _interval(name: str, items: CaptionItems) -> Interval:
    if name.startswith("BLEU-"):
        order = int(name[-1]) - 1
        return bootstrap_interval(items.bleu, lambda counts: bleu_scores(counts)[..., order])
    return bootstrap_interval(rows_by_picture(items.rouge if name == "ROUGE-L" else items.cider))


def _caption_score(name: str, interval: Interval, blind: Mapping[str, float], ceiling: Mapping[str, float]) -> Score:
    return _score(name, interval, blind.get(name), ceiling.get(name))


def _score(name: str, interval: Interval, blind: float | None, ceiling: float | None) -> Score:
    low, high = 100 * interval.low, 100 * interval.high
    return Score(name, 100 * interval.value, low, high, _times_100(blind), _times_100(ceiling))


def _times_100(bound: float | None) -> float | None:
    return None if bound is None else 100 * bound


def score_answers(
    predictions: Mapping[str, str],
    records: Sequence[Record],
    training: Sequence[Question] = (),
    coverage: float = 1.0,
) -> Scores:
    """Accuracy of all questions of the records, and by kind of answer. Every question must be predicted."""
    questions = [question for record in records for question in record.questions]
    pictures = [record.key for record in records for _ in record.questions]
    if not questions:
        raise DataError("no record has questions to score; choose another split with --split")
    vqa_scores(predictions, questions)  # refuses a question without a prediction or without answers
    right = np.array([answer_accuracy(predictions[question.key], question.answers) for question in questions])
    ceiling = answer_ceiling(questions)
    blind, notes = _blind_answers(training, questions) if training else ({}, [])
    notes.insert(0, "intervals: 95%, 1,000 bootstrap draws of pictures, each with all its questions")
    if ceiling:
        notes.append("ceiling: one person's answer against those of the others who were asked")
    scores = []
    for kind in ("all", *dict.fromkeys(question.kind for question in questions)):
        chosen = [at for at, question in enumerate(questions) if kind in ("all", question.kind)]
        interval = bootstrap_interval(rows_by_picture(right[chosen], [pictures[at] for at in chosen]))
        name = "accuracy" if kind == "all" else f"accuracy {kind}"
        scores.append(_score(name, interval, blind.get(kind), (ceiling or {}).get(kind)))
    return Scores("vqa", tuple(scores), len(set(pictures)), len(questions), coverage, tuple(notes))


def _blind_answers(training: Sequence[Question], questions: Sequence[Question]) -> tuple[dict[str, float], list[str]]:
    """What the question-only baseline gets, and in words what that is and what still less gets."""
    taught = BlindAnswers.of(training)
    majority = vqa_scores(taught.majority(questions), questions)["all"]
    by_kind = vqa_scores(taught.majority_by_kind(questions), questions)
    overall = by_kind.pop("all")
    shares = ", ".join(f"{kind} {100 * share:.1f}" for kind, share in by_kind.items())
    return vqa_scores(taught.answers(questions), questions), [
        "blind: question only, the usual answer in training to the same first words, as many of them as were asked "
        f"{taught.at_least} times or more",
        f"“{taught.overall}” to every question gets {100 * majority:.1f}; "
        f"one answer to each kind gets {100 * overall:.1f} ({shares})",
    ]
