"""Learning curves from the logs of runs, and where their lines go on the page."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diptych.runs.reports.report import Chart, Curve
from diptych.training.log import METRICS, read_lines

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 12, 34  # margins for the numbers of the axes
STEPS = (1, 2, 2.5, 5, 10)  # what a reader counts in
LOSS = "loss"
COURSE = {"lr": "learning rate", "gradient_norm": "gradient norm", "samples_per_second": "samples a second"}
Point = tuple[float, float]  # step, value


@dataclass
class Logged:
    """What a run has logged by step: losses, scores of validations, and how it went."""

    losses: dict[str, list[Point]] = field(default_factory=dict)  # `loss` is the weighted sum, the others by objective
    scores: dict[str, list[Point]] = field(default_factory=dict)  # by name, such as CIDEr
    course: dict[str, list[Point]] = field(default_factory=dict)  # by the name that COURSE gives a field

    def add(self, line: Mapping[str, Any]) -> None:
        """A line as `read_lines` hands it back."""
        step = float(line["step"])
        total = {LOSS: line["total"]} if "total" in line else {}
        for name, value in {**total, **line.get("losses", {})}.items():
            _add(self.losses, name, step, value)
        for name, value in line.get("validation", {}).items():
            _add(self.scores, name, step, value)
        for key, name in COURSE.items():
            if key in line:
                _add(self.course, name, step, line[key])


def _add(series: dict[str, list[Point]], name: str, step: float, value: float) -> None:
    series.setdefault(name, []).append((step, float(value)))


def read_log(run: Path) -> Logged:
    """Of a run's folder; nothing where it has logged nothing."""
    logged = Logged()
    for line in read_lines(run / METRICS):
        logged.add(line)
    return logged


def curve(name: str, run: Path, what: str = LOSS) -> Curve | None:
    """`loss`, or a score of the validation such as CIDEr, by step; None where the run has logged none."""
    logged = read_log(run)
    points = (logged.losses if what == LOSS else logged.scores).get(what)
    return Curve(name, tuple(points)) if points else None


def chart(title: str, runs: Mapping[str, Path], what: str = LOSS, y: str = "") -> Chart | None:
    """One curve a run, by its name; None where no run has any."""
    curves = [found for name, run in runs.items() if (found := curve(name, run, what)) is not None]
    return Chart(title, tuple(curves), y=y or what, from_zero=what != LOSS) if curves else None


@dataclass(frozen=True)
class Tick:
    place: float  # in the drawing's own units
    label: str


@dataclass(frozen=True)
class ChartLine:
    name: str
    points: str  # of an SVG polyline
    last: tuple[float, float]
    value: str  # at its end
    dots: tuple[tuple[float, float], ...]  # of a curve with few points


@dataclass(frozen=True)
class ChartDrawing:
    title: str
    x: str
    y: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    lines: tuple[ChartLine, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    bottom: int = HEIGHT - BOTTOM
    right: int = WIDTH - RIGHT


def draw(chart: Chart) -> ChartDrawing:
    """Where everything goes. The axis begins at 0 where it must, or where the values come near it."""
    xs = [x for curve in chart.curves for x, _ in curve.points] or [0.0, 1.0]
    ys = [y for curve in chart.curves for _, y in curve.points] or [0.0, 1.0]
    least, most = min(ys), max(ys)
    if least > 0 and (chart.from_zero or least < 0.6 * most):
        least = 0.0
    up, across = _ticks(least, most), _ticks(0.0, max(xs))
    low, high = min(up[0], least), max(up[-1], most)

    def place(x: float, y: float) -> tuple[float, float]:
        wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        shown = LEFT + wide * x / (max(xs) or 1), TOP + tall * (1 - (y - low) / ((high - low) or 1))
        return round(shown[0], 1), round(shown[1], 1)

    lines = []
    for curve in chart.curves:
        places = tuple(place(x, y) for x, y in curve.points)
        few = places if len(places) <= 30 else ()
        joined = " ".join(f"{x},{y}" for x, y in places)
        lines.append(ChartLine(curve.name, joined, places[-1], _short(curve.points[-1][1]), few))
    return ChartDrawing(
        chart.title, chart.x, chart.y,
        tuple(Tick(place(x, low)[0], _short(x)) for x in across if x <= max(xs)),
        tuple(Tick(place(0, y)[1], _short(y)) for y in up), tuple(lines),
    )  # fmt: skip


def _ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`."""
    span = (high - low) or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(span / wanted))
    step = next(power * factor for factor in STEPS if span / (power * factor) <= wanted)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
