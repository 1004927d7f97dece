"""Scores with confidence intervals, baselines and ceilings. All are multiplied by 100, as in papers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import version
from typing import Any, TypeVar

from numpy.typing import ArrayLike
from pydantic import TypeAdapter

from diptych.core.shares import FEWEST
from diptych.data.leakage import Leakage
from diptych.metrics.bootstrap import Interval, bootstrap_interval, rows_by_picture
from diptych.runtime.errors import DataError, counted, nearest

Some = TypeVar("Some", bound=Sized)


@dataclass(frozen=True, repr=False)
class Score:
    """One score, such as CIDEr.

    `low` and `high` are the ends of its 95% confidence interval (bootstrap over images).
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    blind: float | None = None  # score of the baseline that does not see the image
    ceiling: float | None = None  # human score: one person's answer or caption is scored against the others
    notes: tuple[str, ...] = ()  # in a comparison: the number of test images that each model was trained on
    # In a comparison: the name and the score of A and of B (None: not known). `value` is then B minus A.
    compared: tuple[tuple[str, float | None], ...] = ()

    def __repr__(self) -> str:
        interval = "" if self.low is None else f" ({self.low:.1f} to {self.high:.1f})"
        blind = "" if self.blind is None else f"; blind {self.blind:.1f}"
        notes = "".join(f"; {note}" for note in self.notes)
        what = f"{self.name}, B minus A: {self.value:+.1f}" if self.compared else f"{self.name} {self.value:.1f}"
        return f"<diptych.Score {what}{interval}{blind}{notes}>"

    def _repr_html_(self) -> str | None:
        if not self.compared:
            return None
        interval = "" if self.low is None else f"{self.low:+.1f} to {self.high:+.1f}"
        rows = [("", self.name, "95% interval"), ("B minus A", f"{self.value:+.1f}", interval)]
        rows[1:1] = [
            (f"{place}: {name}", "" if value is None else f"{value:.1f}", "")
            for place, (name, value) in zip("AB", self.compared, strict=True)
        ]
        return html_table(rows) + f"<p>{escape('; '.join(self.notes))}</p>"

    @property
    def mark(self) -> str:
        """Why the score is suspicious: "below blind" or "above ceiling"; "" for a plausible score."""
        if self.blind is not None and self.value < self.blind:
            return "below blind"
        return "above ceiling" if self.ceiling is not None and self.value > self.ceiling else ""

    def to_json(self) -> dict[str, Any]:
        interval = [self.low, self.high] if self.low is not None else None
        named: dict[str, Any] = {
            "value": self.value,
            "interval": interval,
            "blind": self.blind,
            "ceiling": self.ceiling,
        }
        named |= {"notes": list(self.notes) or None}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class ItemScore:
    """The score of one item, such as a question, with its prediction and the reference as texts."""

    key: str  # key of the query, as in predictions
    picture: str  # key of the image
    query: str  # text of the query; "" for a caption
    given: str
    wanted: str  # the most frequent reference; "" for a caption
    value: float  # from 0 (wrong) to 1 (right); CIDEr of a caption: from 0 to 10
    kind: str = ""  # kind of the question, or name of the task
    blind: str = ""  # prediction of the blind baseline, if it is known
    boxes: tuple[tuple[str, Sequence[float]], ...] = ()  # (label, box from 0 to 1): predicted and true box
    hits: tuple[str, ...] = ()  # keys of the retrieved images, best first

    @property
    def right(self) -> bool:
        return self.value >= (1.0 if self.hits else 0.5)


@dataclass(frozen=True, repr=False)
class Scores:
    """All scores of one model on one set of images."""

    task: str  # name of the task, such as "vqa"
    scores: tuple[Score, ...]
    pictures: int
    items: int  # number of scored items: captions, questions and so on
    coverage: float = 1.0  # share of the queries that have a prediction and are scored
    notes: tuple[str, ...] = ()  # sentences on how baselines and ceilings were computed
    # Overlap of the scored images with the model's training images; None: no model was scored.
    trained_on: Leakage | None = None
    rows: tuple[ItemScore, ...] = field(default=(), compare=False)  # the score of each item; not in `to_json`

    @property
    def few(self) -> bool:
        """True if too few items were scored for reliable scores."""
        return self.items < FEWEST

    @property
    def warning(self) -> str:
        """A warning if too few items were scored, else ""."""
        return f"only {self.items} scored: too few for a reliable score" if self.few else ""

    @property
    def _size(self) -> str:
        return f"{counted(self.items, 'items')}, {counted(self.pictures, 'images')}"

    def __repr__(self) -> str:
        listed = ", ".join(f"{score.name} {score.value:.1f}" for score in self.scores)[:120]
        warning = f"; {self.warning}" if self.few else ""
        seen = "" if self.trained_on is None else f"; {self.trained_on.text[:100]}"
        return f"<diptych.Scores of {self.task}: {listed}; {self._size}{warning}{seen}>"

    def _repr_html_(self) -> str:
        columns = ("score", "value", "low", "high", "blind", "ceiling")
        rows = [(one.name, one.value, one.low, one.high, one.blind, one.ceiling) for one in self.scores]
        shown = [columns, *([name, *("" if one is None else f"{one:.1f}" for one in values)] for name, *values in rows)]
        seen = "" if self.trained_on is None else escape(f"{self.trained_on.text}.")
        return f"{html_table(shown)}<p>{self._size}. {seen} <b>{self.warning}</b></p>"

    def keys(self) -> list[str]:
        """Return the names of the scores, so that `dict(scores)` maps each name to its `Score`."""
        return [score.name for score in self.scores]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> Score:
        if named := [score for score in self.scores if score.name == name]:
            return named[0]
        raise KeyError(f"no score {name!r}; {nearest(str(name), self.keys())}")

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task, "scores": {score.name: score.to_json() for score in self.scores},
            "pictures": self.pictures, "items": self.items, "coverage": self.coverage, "notes": list(self.notes),
            "diptych": version("diptych"),
            **({"trained_on": self.trained_on.to_json()} if self.trained_on is not None else {}),
        } | ({"warning": self.warning} if self.few else {})  # fmt: skip

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Scores:
        """Build from the result of `to_json`.

        Raises ValueError, TypeError, KeyError or AttributeError for invalid data.
        """
        scores = [{"name": name, **score} for name, score in saved["scores"].items()]
        for score in scores:
            score["low"], score["high"] = score.pop("interval", (None, None))
        return TypeAdapter(cls).validate_python({**saved, "scores": scores})


def html_table(rows: Iterable[Iterable[str]]) -> str:
    """Return an HTML table of texts."""
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{lines}</table>"


@dataclass(frozen=True)
class Baselines:
    """Baselines and ceilings on one set of images: {name of the score: value from 0 to 1, or 0 to 10 for CIDEr}."""

    blind: Mapping[str, float] = field(default_factory=dict)
    ceiling: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    predicted: Mapping[str, Any] | None = None  # {query: prediction of the blind baseline}, for paired comparisons

    def score(self, name: str, interval: Interval, key: str | None = None) -> Score:
        """Build the score `name` with its baseline and ceiling, which are stored under `key` (default: `name`)."""
        return score_of(name, interval, self.blind.get(key or name), self.ceiling.get(key or name))


def present(items: Some, what: str) -> Some:
    """Return the items of a split, described by `what`. Raises DataError if there are none."""
    if not items:
        raise DataError(f"no record has {what}; choose another split with --split")
    return items


def score_of(name: str, interval: Interval, blind: float | None = None, ceiling: float | None = None) -> Score:
    """Build a score from values between 0 and 1 (CIDEr: 0 to 10). They are multiplied by 100."""
    blind, ceiling = (None if bound is None else 100 * bound for bound in (blind, ceiling))
    return Score(name, 100 * interval.value, 100 * interval.low, 100 * interval.high, blind, ceiling)


def share_scores(
    task: str, hits: Mapping[str, tuple[ArrayLike, list[str]]], noun: str, baselines: Baselines | None,
    rows: tuple[ItemScore, ...] = (),
) -> Scores:  # fmt: skip
    """Build scores that are accuracies.

    `hits`: {name of the score: (1 (right) or 0 for each query, key of its image)}.
    """
    baselines = baselines or Baselines()
    scores = tuple(
        baselines.score(name, bootstrap_interval(rows_by_picture(right, pictures)))
        for name, (right, pictures) in hits.items()
    )
    _, pictures = next(iter(hits.values()))
    notes = (f"intervals: 95%, 1,000 bootstrap resamples of images, each with all its {noun}", *baselines.notes)
    return Scores(task, scores, len(set(pictures)), len(pictures), notes=notes, rows=rows)
