"""How a study saves a score: as a dict of numbers, never as a sentence.

`value` is the score. `low` and `high` are its 95% interval; with `seeds`, they are the lowest and the highest of N
runs. `blind` is the score without the image, and `ceiling` that of a human annotator. Only `value` is always present.
Scores are multiplied by 100. Counts, steps and seconds are plain numbers. Text is only used for names, such as a
detector's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import Figure, save_result
from diptych.metrics.bootstrap import Interval

RESULTS = Path(__file__).parent / "results"
FIELDS = ("value", "low", "high", "blind", "ceiling", "seeds")


def of_interval(interval: Interval) -> Figure:
    return {name: round(getattr(interval, name), 1) for name in ("value", "low", "high")}


def is_figure(node: Any) -> bool:
    return isinstance(node, Mapping) and "value" in node


def save(name: str, command: str, figures: dict[str, Any]) -> Path:
    """Write `experiments/results/NAME.json` and return its path. Then `make docs` makes its page."""
    return save_result(name, command, figures, RESULTS)
