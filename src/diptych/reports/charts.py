"""Learning curves from the logs of runs, and where their lines go on the page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from diptych.reports.report import Chart, Curve
from diptych.training.log import METRICS

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 12, 34  # margins for the numbers of the axes
STEPS = (1, 2, 2.5, 5, 10)  # what a reader counts in


def curve(name: str, run: Path, what: str = "loss") -> Curve | None:
    """`loss`, or a score of the validation such as CIDEr, by step; None where the run has logged none."""
    path = run / METRICS
    points = []
    for text in path.read_text("utf-8").splitlines() if path.is_file() else ():
        try:
            line = json.loads(text)
            value = line["total"] if what == "loss" else line.get("validation", {}).get(what)
            step = float(line["step"])
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a line that a kill cut short
        if isinstance(value, int | float) and math.isfinite(value):
            points.append((step, float(value)))
    return Curve(name, tuple(points)) if points else None


def chart(title: str, runs: Mapping[str, Path], what: str = "loss", y: str = "") -> Chart | None:
    """One curve a run, by its name; None where no run has any."""
    curves = [found for name, run in runs.items() if (found := curve(name, run, what)) is not None]
    return Chart(title, tuple(curves), y=y or what, from_zero=what != "loss") if curves else None


@dataclass(frozen=True)
class Tick:
    place: float  # in the drawing's own units
    label: str


@dataclass(frozen=True)
class Line:
    name: str
    points: str  # of an SVG polyline
    last: tuple[float, float]
    value: str  # at its end
    dots: tuple[tuple[float, float], ...]  # of a curve with few points


@dataclass(frozen=True)
class Drawing:
    title: str
    x: str
    y: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    lines: tuple[Line, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    bottom: int = HEIGHT - BOTTOM
    right: int = WIDTH - RIGHT


def draw(chart: Chart) -> Drawing:
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
        lines.append(Line(curve.name, joined, places[-1], _short(curve.points[-1][1]), few))
    return Drawing(
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
