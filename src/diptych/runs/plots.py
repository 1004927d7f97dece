"""Learning curves of runs as an HTML page, SVG or CSV (`diptych plot`)."""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from diptych.runs.reports.charts import LOSS, Point, draw, explained_losses, read_log
from diptych.runs.reports.environment import environment
from diptych.runs.reports.html import COLOURS, page
from diptych.runs.reports.report import Chart, Curve, Report
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.files import write_atomically
from diptych.systems.recipe import FILE as RECIPE
from diptych.systems.recipe import Recipe
from diptych.training.log import METRICS

MOST_POINTS = 1000  # a curve has at most this many points, so that a page with 20 runs stays small
ENDINGS = (".html", ".svg", ".csv")
SUM = " + "  # between the names of summed losses


def find_runs(folders: Iterable[Path]) -> dict[str, Path]:
    """Return {name: folder} of all runs in `folders`. The name is the path below their common parent.

    A run with stages is replaced by its stages, and a model folder by its run's folder.

    Raises DataError if a folder has no training log.
    """
    logs: dict[str, Path] = {}
    for folder in folders:
        inside = [folder, folder.parent] if folder.name == "model" else [folder, *sorted(folder.glob("stage-*"))]
        runs = [one for one in inside if (one / METRICS).is_file()]
        if not runs:
            raise DataError(f"no {METRICS} in {folder}; pass the folder of a run (--out of pretrain or finetune)")
        logs |= {str(run): run for run in runs}
    common = Path(os.path.commonpath([run.resolve().parent for run in logs.values()])) if logs else Path()
    return {str(run.resolve().relative_to(common)): run for run in logs.values()}


def charts(runs: Mapping[str, Path], smooth: int, log: bool = False, x: str = "step") -> list[Chart]:
    """Make the charts of losses, validation scores, learning rates and speed. Each has one curve per run.

    A chart of losses has losses of one kind, or sums of the same kinds. Losses are averaged over `smooth` logged steps.
    `log`: losses have a logarithmic axis. `x`: the horizontal axis, step or epoch.
    """
    logged = {name: read_log(run, x) for name, run in runs.items()}
    if empty := [name for name, one in logged.items() if not one.losses]:
        raise DataError(f"{', '.join(empty)}: {METRICS} has no logged step; wait for the first (training.log_every)")
    of_losses = {name: _by_kind(one.losses) for name, one in logged.items()}
    means = f"loss, mean of {smooth} logged steps" if smooth > 1 else "loss"
    plain = {what: texts for run in runs.values() for what, texts in explained_losses(run).items()}
    made = [_named(_chart(what, of_losses, means, smooth, log=log), plain) for what in _names(of_losses)]
    of_scores = {name: {what: _rounded(one.scores[what]) for what in one.scores} for name, one in logged.items()}
    made += [_chart(what, of_scores, f"{what} of the validation", 1, from_zero=True) for what in _names(of_scores)]
    of_course = {name: one.course for name, one in logged.items()}
    last = [_chart(what, of_course, what, 1, from_zero=True) for what in _names(of_course)]
    return [replace(one, x=x) for one in made + last]


def _by_kind(losses: Mapping[str, list[Point]]) -> dict[str, list[Point]]:
    """Return the losses, with the sum named after its parts. The sum of a single loss is left out."""
    parts = [name for name in losses if name != LOSS]
    kept = losses if len(parts) > 1 else parts or losses
    return {SUM.join(parts) if name == LOSS and parts else name: losses[name] for name in kept}


def _named(chart: Chart, plain: Mapping[str, tuple[str, str]]) -> Chart:
    """Return a chart of losses with plain names, from `explained_losses`."""
    split = [name.partition("/") for name in chart.title.split(SUM)]
    texts = [plain.get(name, (name, "")) for name, _, _ in split]
    names = [f"{name}, pass {turn}" if turn else name for (name, _), (_, _, turn) in zip(texts, split, strict=True)]
    if len(names) > 1:
        return replace(chart, title=f"sum of {len(names)} losses", about=f"weighted: {', '.join(names)}")
    return replace(chart, title=names[0], about=texts[0][1])


def _rounded(points: Iterable[Point]) -> list[Point]:
    return [(step, round(value, 3)) for step, value in points]  # so that 4.2e-05 is shown as 0


def _names(series: Mapping[str, Mapping[str, Sequence[Point]]]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(series.values())))


def _chart(
    what: str,
    series: Mapping[str, Mapping[str, Sequence[Point]]],
    y: str,
    smooth: int,
    from_zero: bool = False,
    log: bool = False,
) -> Chart:
    curves = [Curve(name, _thinned(_means(one[what], smooth))) for name, one in series.items() if what in one]
    return Chart(what, tuple(curves), y=y, from_zero=from_zero, log=log)


def _means(points: Sequence[Point], over: int) -> tuple[Point, ...]:
    """Return the moving average over the last `over` values. The first points average over fewer values."""
    total, made = 0.0, []
    for number, (step, value) in enumerate(points):
        total += value - (points[number - over][1] if number >= over else 0.0)
        made.append((step, total / min(number + 1, over)))
    return tuple(made)


def _thinned(points: tuple[Point, ...]) -> tuple[Point, ...]:
    every = -(-len(points) // MOST_POINTS)
    return points if every <= 1 else (*points[::every], *(points[-1:] if (len(points) - 1) % every else ()))


def write_plot(folders: Iterable[Path], out: Path, smooth: int, log: bool = False, x: str = "step") -> list[Chart]:
    """Write the curves of the runs in `folders` to `out`: .html, .svg or .csv. Return the charts.

    Raises RecipeError for another suffix, and DataError if there is no run.
    """
    if out.suffix.lower() not in ENDINGS:
        raise RecipeError(f"--out {out}: expected a name ending in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    runs = find_runs(folders)
    made = charts(runs, smooth, log, x)
    if out.suffix.lower() == ".svg":
        text = svg_of(made, list(runs))
    elif out.suffix.lower() == ".csv":
        text = _csv(runs, x)
    else:
        lead = f"Losses are means over {smooth} logged steps. The files: " if smooth > 1 else "The files: "
        paths = ", ".join(str(run / METRICS) for run in runs.values())
        text = page(Report("Learning curves", f"{lead}{paths}.", _settings(runs), charts=tuple(made)))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode("utf-8", "replace"))
    return made


def svg_of(made: Sequence[Chart], names: Sequence[str]) -> str:
    """Return an SVG with all charts. `names` are the runs, which get one colour each."""
    hues = {name: number % COLOURS for number, name in enumerate(names)}
    return environment().get_template("plot.svg.jinja").render(drawings=[draw(chart) for chart in made], hues=hues)


def _csv(runs: Mapping[str, Path], x: str) -> str:
    """Return a CSV table of all logged values, not averaged."""
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(("run", "name", x, "value"))
    for run, folder in runs.items():
        logged = read_log(folder, x)
        for name, points in chain(logged.losses.items(), logged.scores.items(), logged.course.items()):
            writer.writerows(
                (run, name, f"{place:.6g}" if x == "epoch" else int(place), value) for place, value in points
            )
    return made.getvalue()


def _settings(runs: Mapping[str, Path]) -> dict[str, str]:
    """Return {run: its recipe, and the settings that differ from the first run's}."""
    recipes = {name: Recipe.load(run) for name, run in runs.items() if (run / RECIPE).is_file()}
    first = next(iter(recipes.values()), None)
    settings: dict[str, str] = {}
    for name, recipe in recipes.items():
        differs = recipe.differences(first) if first is not None else []
        settings[name] = "; ".join([recipe.name, *(line.replace(", was ", ", first run: ") for line in differs)])
    return settings
