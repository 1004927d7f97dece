"""How a study keeps a score: a dict of numbers, never a sentence.

`value`, and of these what is known: `low` and `high` (a 95% interval, or with `seeds` the least and the most of N
runs), `blind` (the score without the picture) and `ceiling` (what a person gets). Scores are times 100. Counts, steps
and seconds are plain numbers; text only names objects.
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
    """Write `experiments/results/NAME.json`; `make docs` then makes its pages."""
    return save_result(name, command, figures, RESULTS)
