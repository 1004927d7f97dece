"""Write a report as a single HTML file that includes its images and plots.

It makes no network requests. Its only script sorts and filters the images.

jinja2 escapes all texts, such as captions. Plots are SVG in the template. charts.py and this file compute their
coordinates. A content security policy blocks requests, and every script but this one.
"""

import base64
import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup
from PIL import Image

from diptych.runs.reports.charts import draw
from diptych.runs.reports.environment import environment
from diptych.runs.reports.labels import lay_out
from diptych.runs.reports.report import Arm, Box, Comparison, Report
from diptych.runs.reports.tables import figure
from diptych.runtime.errors import DataError
from diptych.runtime.files import text_of, write_atomically
from diptych.tasks.scores import Score
from diptych.vision.pictures import open_picture

FILE = "report.html"
LARGEST = 480  # an image is scaled down until its longer side has this many pixels
QUALITY = 88  # quality of the JPEG images, up to 100
# HTML comments around the links between pages. Other text is escaped, so it cannot contain such comments.
BEFORE_LINKS, AFTER_LINKS = "<!--pages-->", "<!--/pages-->"
COLOURS = 6  # number of colours of curves that the style sheet defines


def write_report(path: Path, report: Report) -> Path:
    """Write a report to a file atomically, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page(report).encode("utf-8", "replace"))
    return path


def page(report: Report) -> str:
    """Render a report to HTML."""
    script = _environment().get_template("report.js").render() if report.gallery else ""
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            report=report,
            script=Markup(script),
            policy=f"; script-src 'sha256-{allowed}'" if script else "",
            comparisons=[
                (comparison, [_bars(comparison, name) for name in comparison.drawn])
                for comparison in report.comparisons
            ],
            hues=_hues(report),
            drawings=[draw(chart) for chart in report.charts],
            seconds=sum(stage.seconds for stage in report.stages),
            longest=max((stage.seconds for stage in report.stages), default=1.0) or 1.0,
        )
    )


def link_pages(pages: Mapping[str, Path], *front: Path) -> None:
    """Write links to all `pages` ({title: path}) into each of them and into the `front` pages.

    A new call replaces the links.
    """
    everywhere = {*pages.values(), *front}
    if len(everywhere) < 2:
        return
    for path in everywhere:
        links = [(name, os.path.relpath(page, path.parent), page == path) for name, page in pages.items()]
        written = text_of(path)
        before, _, rest = written.partition(BEFORE_LINKS)
        _, _, after = rest.partition(AFTER_LINKS)
        section = _environment().get_template("links.html.jinja").render(links=links)
        write_atomically(path, f"{before}{BEFORE_LINKS}{section}{AFTER_LINKS}{after}".encode())


@dataclass(frozen=True)
class Bar:
    """The bar of one arm's score. `value`, `low` and `high` are positions in percent of the scale."""

    arm: Arm
    score: Score
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Bars:
    """The bars of one score for all arms. `blind_at` and `ceiling_at` are positions in percent of the scale."""

    name: str
    blind: float | None
    ceiling: float | None
    blind_at: float
    ceiling_at: float
    bars: tuple[Bar, ...]


def _bars(comparison: Comparison, name: str) -> Bars:
    scores = [(arm, arm.scores[name]) for arm in comparison.arms]
    blind = next((score.blind for _, score in scores if score.blind is not None), None)
    ceiling = next((score.ceiling for _, score in scores if score.ceiling is not None), None)
    ends = [end for _, score in scores for end in (score.value, score.high)]
    longest = 1.04 * max([end for end in (*ends, blind, ceiling) if end is not None] or [1.0]) or 1.0

    def at(value: float | None) -> float:
        return round(100 * min(max(value or 0.0, 0.0), longest) / longest, 2)

    bars = tuple(
        Bar(arm, score, at(score.value), at(score.value if score.low is None else score.low),
            at(score.value if score.high is None else score.high))
        for arm, score in scores
    )  # fmt: skip
    return Bars(name, blind, ceiling, at(blind), at(ceiling), bars)


@lru_cache(maxsize=256)
def picture_uri(path: Path | None, largest: int = LARGEST) -> str:
    """Return an image as a data URI, scaled down to `largest` pixels per side. Return "" if it cannot be opened."""
    if path is None:
        return ""
    try:
        pixels = open_picture(path)
    except DataError:
        return ""
    image = Image.fromarray(pixels.permute(1, 2, 0).numpy())
    image.thumbnail((largest, largest))
    kept = io.BytesIO()
    image.save(kept, format="JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(kept.getvalue()).decode("ascii")


def _hues(report: Report) -> dict[str, int]:
    """Return {arm: number of its colour}, the same for the whole page."""
    arms = [arm.name for comparison in report.comparisons for arm in comparison.arms]
    curves = [curve.name for chart in report.charts for curve in chart.curves]
    return {name: number % COLOURS for number, name in enumerate(dict.fromkeys([*arms, *curves]))}


def _colours(boxes: tuple[Box, ...]) -> dict[str, int]:
    """Return {class: number of its colour} for an image, in the order of the boxes."""
    return {name: number % COLOURS for number, name in enumerate(dict.fromkeys(box.name for box in boxes))}


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _environment() -> Environment:
    made = environment()
    made.filters |= {
        "figure": figure, "uri": picture_uri, "colours": _colours, "duration": _duration,
        "labels": lambda shown: lay_out(shown.boxes, shown.size),
    }  # fmt: skip
    return made
