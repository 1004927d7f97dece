"""Scores with how sure they are, and what they are held against. All times 100, as papers print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import TypeAdapter

from diptych.metrics.bootstrap import Interval, bootstrap_interval, rows_by_picture


@dataclass(frozen=True)
class Score:
    """One figure. `low` and `high` bound it in 95 of 100 bootstrap draws of the pictures."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    blind: float | None = None  # what is had without the picture
    ceiling: float | None = None  # what one person gets, held against the others
    seeds: tuple[float, ...] = ()  # the single values, where `value` is the mean of several runs

    def to_json(self) -> dict[str, Any]:
        named = {"value": self.value, "interval": [self.low, self.high] if self.low is not None else None}
        named |= {"blind": self.blind, "ceiling": self.ceiling, "seeds": list(self.seeds) or None}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Scores:
    """All figures of one system on one set of pictures."""

    task: str  # a name in TASKS
    scores: tuple[Score, ...]
    pictures: int
    items: int  # captions, answers or whatever the task scores
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
        """What `to_json` made. Raises ValueError, TypeError, KeyError or AttributeError for anything else."""
        scores = [{"name": name, **score} for name, score in saved["scores"].items()]
        for score in scores:
            score["low"], score["high"] = score.pop("interval", (None, None))
        return TypeAdapter(cls).validate_python({**saved, "scores": scores})


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


def score_of(name: str, interval: Interval, blind: float | None = None, ceiling: float | None = None) -> Score:
    """All from 0 to 1 (CIDEr 0 to 10), made times 100."""
    low, high = 100 * interval.low, 100 * interval.high
    return Score(name, 100 * interval.value, low, high, _times_100(blind), _times_100(ceiling))


def _times_100(bound: float | None) -> float | None:
    return None if bound is None else 100 * bound


def share_scores(
    task: str, found: Mapping[str, tuple[ArrayLike, list[str]]], what: str, baselines: Baselines | None
) -> Scores:
    """Shares of what is right: by the score's name 1 or 0 for each of `what` that was asked, and its picture."""
    baselines = baselines or Baselines()
    scores = tuple(
        score_of(
            name,
            bootstrap_interval(rows_by_picture(right, pictures)),
            baselines.blind.get(name),
            baselines.ceiling.get(name),
        )
        for name, (right, pictures) in found.items()
    )
    _, pictures = next(iter(found.values()))
    notes = (f"intervals: 95%, 1,000 bootstrap draws of pictures, each with all its {what}", *baselines.notes)
    return Scores(task, scores, len(set(pictures)), len(pictures), notes=notes)
