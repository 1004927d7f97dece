"""Read learning curves from the logs of runs, and lay them out for SVG."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diptych.objectives import SelfCritical, SummedByPair
from diptych.runs.reports.report import Chart, Curve
from diptych.runtime.errors import DataError
from diptych.systems.recipe import ANY_WORDS, Recipe
from diptych.systems.recipe import FILE as RECIPE
from diptych.training.log import METRICS, MOST_STEPS, read_lines

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 12, 34  # margins in SVG units, for axis labels
DOTS = 60  # on hover, a curve shows the values of at most this many points
STEPS = (1, 2, 2.5, 5, 10)  # distances that axis ticks may have, times a power of 10
LOSS = "loss"
COURSE = {"lr": "learning rate", "gradient_norm": "gradient norm", "samples_per_second": "samples a second"}
Point = tuple[float, float]  # (step or epoch, value)


@dataclass
class Logged:
    """The log of a run: curves of losses, validation scores, learning rates and speed."""

    losses: dict[str, list[Point]] = field(default_factory=dict)  # {objective: its losses}; `loss` is the weighted sum
    scores: dict[str, list[Point]] = field(default_factory=dict)  # {score, such as CIDEr: its values}
    # {name in COURSE, such as the learning rate: its values}.
    course: dict[str, list[Point]] = field(default_factory=dict)


def read_log(run: Path, x: str = "step") -> Logged:
    """Read the log in a run's folder. Without a log, the result is empty.

    `x`: step or epoch, the first number of each point. Raises DataError if the log lacks it.
    """
    logged = Logged()
    for line in read_lines(run / METRICS):
        if not 0 <= line.get(x, -1) <= MOST_STEPS:
            raise DataError(f"{run / METRICS} has no epochs: draw this run by steps, without --by-epoch")
        losses = ({LOSS: line["total"]} if "total" in line else {}) | line.get("losses", {})
        course = {name: line[key] for key, name in COURSE.items() if key in line}
        groups = (logged.losses, losses), (logged.scores, line.get("validation", {})), (logged.course, course)
        for series, values in groups:
            for name, value in values.items():
                series.setdefault(name, []).append((float(line[x]), float(value)))
    return logged


def chart(title: str, runs: Mapping[str, Path], what: str = LOSS) -> Chart | None:
    """Return a chart of `what`, "loss" or a validation score such as "CIDEr", with one curve per run that has it.

    `runs`: {name: folder}. None if no run has logged `what`.
    """
    logged = {
        name: (one.losses if what == LOSS else one.scores) for name, run in runs.items() for one in [read_log(run)]
    }
    curves = tuple(Curve(name, tuple(one[what])) for name, one in logged.items() if what in one)
    losses = {text: None for run in runs.values() for _, text in explained_losses(run).values() if what == LOSS}
    return Chart(title, curves, y=what, from_zero=what != LOSS, about=" ".join(losses)) if curves else None


def explained_losses(run: Path) -> dict[str, tuple[str, str]]:
    """Return {name of a loss in the log: (plain name, the name with an explanation)} of a run with a recipe.

    Both are from the first line of the objective's docstring, such as "Masked words: the model predicts ...".
    """
    if not (run / RECIPE).is_file():
        return {}
    schedule = Recipe.load(run).objectives.schedule(ANY_WORDS)
    rewarded = [update for update, _ in schedule.updates if isinstance(update, SelfCritical)]
    objectives: list[Any] = [*schedule.objectives, *rewarded]
    whole = [one.objective if isinstance(one, SummedByPair) else one for one in objectives]
    lines = {one.name: (type(one).__doc__ or "").partition("\n")[0] for one in whole}
    return {name: (line.partition(": ")[0], line) for name, line in lines.items() if ": " in line}


@dataclass(frozen=True)
class Tick:
    place: float  # position on the axis, in SVG units
    label: str


@dataclass(frozen=True)
class ChartLine:
    name: str
    points: str  # value of the attribute `points` of an SVG polyline
    last: tuple[float, float]
    value: str  # last value of the curve, as a label
    few: bool  # True: the curve has few points, so they are drawn as dots
    dots: tuple[tuple[float, float, str], ...]  # (x, y, text that appears on hover)


@dataclass(frozen=True)
class ChartDrawing:
    title: str
    about: str
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
    """Compute the positions of a chart's curves and ticks.

    The y axis starts at 0 if `from_zero`, or if values are close to 0.
    """
    xs = [x for curve in chart.curves for x, _ in curve.points] or [0.0, 1.0]
    ys = [y for curve in chart.curves for _, y in curve.points] or [0.0, 1.0]
    least, most = min(ys), max(ys)
    log = chart.log and least > 0
    if not log and least > 0 and (chart.from_zero or least < 0.6 * most):
        least = 0.0
    scale = math.log10 if log else float
    up, across = _log_ticks(least, most) if log else _ticks(least, most), _ticks(0.0, max(xs))
    low, high = scale(min(up[0], least)), scale(max(up[-1], most))

    def place(x: float, y: float) -> tuple[float, float]:
        wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        shown = LEFT + wide * x / (max(xs) or 1), TOP + tall * (1 - (scale(y) - low) / ((high - low) or 1))
        return round(shown[0], 1), round(shown[1], 1)

    lines = []
    for curve in chart.curves:
        places = tuple(place(x, y) for x, y in curve.points)
        every = -(-len(places) // DOTS)
        dots = [(*spot, f"{_short(x)}: {y:.4g}") for spot, (x, y) in zip(places, curve.points, strict=True)][::every]
        joined = " ".join(f"{x},{y}" for x, y in places)
        lines.append(
            ChartLine(curve.name, joined, places[-1], _short(curve.points[-1][1]), len(places) <= 30, tuple(dots))
        )
    return ChartDrawing(
        chart.title, chart.about, chart.x, chart.y + (", log axis" if log else ""),
        tuple(Tick(place(x, least or up[0])[0], _short(x)) for x in across if x <= max(xs)),
        tuple(Tick(place(0, y)[1], _short(y)) for y in up), tuple(lines),
    )  # fmt: skip


def _ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Return about `wanted` round numbers that cover the range from `low` to `high`."""
    span = (high - low) or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(span / wanted))
    step = next(power * factor for factor in STEPS if span / (power * factor) <= wanted)
    first = math.floor(low / step + 1e-9)
    return [round(number * step, 10) for number in range(first, max(math.ceil(high / step - 1e-9), first + 1) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return powers of 10 that cover the range. A range of at most two powers also gets 2 and 5 times each power."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    below, above = [tick for tick in ticks if tick <= low], [tick for tick in ticks if tick >= high]
    return [tick for tick in ticks if below[-1] <= tick <= above[0]]


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
