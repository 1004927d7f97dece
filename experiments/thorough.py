"""Measure the gain of pre-training by the number of labelled scenes, over several seeds (3 CPU-hours).

    uv run python -m experiments.thorough DIR [--fast]; uv run python -m experiments.demo DIR

There are three arms. The first trains from scratch and the second from pre-trained weights, both with early stopping on
val. The third trains from scratch for the steps of pre-training and fine-tuning together. A cell is one training: a
task, an arm, a number of scenes and a seed. Each cell is saved when it ends, so a stopped comparison resumes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt
from rich.console import Console
from rich.table import Table

from diptych.core import Record
from diptych.data.store.store import Store, iterate
from diptych.runtime.files import write_atomically
from diptych.tasks import find_task
from diptych.tasks.spec import Predicted
from diptych_world.demo.comparison import Cell, ComparisonRow, read_predictions
from diptych_world.demo.demo import (
    PRETRAINED,
    RATES,
    SCRATCH,
    TASKS,
    DemoConfig,
    Times,
    arm_settings,
    extract_world,
    pretrain_in_ranks,
    pretraining_recipe,
    run_cells,
)
from diptych_world.demo.measure import measure

LONG, GAIN = "from scratch, steps of both phases", "gain of pre-training"
SCORES = {task: find_task(task).scoring.shown[:2] for task in TASKS}


class ThoroughConfig(BaseModel):
    """The size of the comparison. Each seed samples its own labelled scenes, and the seeds use the pre-trained models
    in turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    demo: DemoConfig = DemoConfig()
    labels: tuple[PositiveInt, ...] = (100, 300, 1000)
    seeds: PositiveInt = 3
    pretrainings: PositiveInt = 2
    longer_seeds: PositiveInt = 1  # seeds of the third arm, which costs as much as all others

    @classmethod
    def of(cls, demo: DemoConfig) -> ThoroughConfig:
        """Return the comparison for 10%, 30% and all of the demo's labelled scenes."""
        return cls(demo=demo, labels=tuple(sorted({max(1, demo.train * share // 10) for share in (1, 3, 10)})))


def thorough(out: Path, config: ThoroughConfig, console: Console) -> dict[str, Any]:
    """Run every cell (one training) that has no row yet; return the contents of `out/thorough.json`."""
    times = Times(out / "stages.json", console)
    store = extract_world(out, config.demo, times)
    with times.stage("pre-train"):
        pretrained = [
            pretrain_in_ranks(pretraining_recipe(config.demo, seed), store, out / f"pretrain-{seed}")
            for seed in range(config.pretrainings)
        ]
    cells = list(_cells(config, store, pretrained, out))
    with times.stage("arms"):
        rows = run_cells(cells, console)
    with times.stage("scratch, longer"):
        longer = list(longer_cells(cells, rows, config))
        rows += run_cells(longer, console)
    baselines = _bounds(store, cells)
    results: dict[str, Any] = {
        "figures": figures_of(rows),
        "held against": baselines,
        "rates": {f"{task}, {arm}": rate for (task, arm), rate in RATES.items()},
        "rounds": [asdict(row) for row in rows],
        "seconds": times.seconds,
        "config": config.model_dump(),
    }
    write_atomically(out / "thorough.json", (json.dumps(results, indent=1) + "\n").encode())
    for task in TASKS:
        console.print(_table(task, rows, baselines[task]))
    console.print(f"all rows: {out / 'thorough.json'}; the pictures and curves of each arm: {out / 'arms'}")
    return results


def _cells(config: ThoroughConfig, store: Store, pretrained: Sequence[Path], out: Path) -> Iterator[Cell]:
    """Yield the cells seed by seed. The longest come first, so that none runs alone at the end."""
    places = str(store.folder), str(out / "arms")
    for seed in range(config.seeds):
        for labels in sorted(config.labels, reverse=True):
            for task in TASKS:
                for arm in (SCRATCH, PRETRAINED):
                    start = str(pretrained[seed % len(pretrained)]) if arm == PRETRAINED else None
                    settings = arm_settings(config.demo, labels)
                    yield Cell(task, arm, labels, seed, RATES[task, arm], start, *places, settings)


def longer_cells(cells: Sequence[Cell], rows: Sequence[ComparisonRow], config: ThoroughConfig) -> Iterator[Cell]:
    """Yield cells from scratch with the steps of pre-training and fine-tuning together. Their learning rate decays to
    0."""
    for cell, row in zip(cells, rows, strict=True):
        if cell.arm == PRETRAINED and cell.seed < config.longer_seeds:
            steps = config.demo.pretrain_steps + row.steps
            own = (f"training.steps={steps}", "training.patience=null", "optimizer.schedule=linear")
            rate, settings = RATES[cell.task, SCRATCH], (*cell.settings, *own)
            yield replace(cell, arm=LONG, lr=rate, start=None, settings=settings)


def figures_of(rows: Sequence[ComparisonRow]) -> dict[str, Any]:
    """Return task -> labelled scenes -> arm -> score, and the gain of pre-training, paired by seed."""
    figures: dict[str, Any] = {}
    for task, labels, of_both in _grouped(rows):
        by_arm = {arm: [row for row in of_both if row.arm == arm] for arm in (SCRATCH, LONG, PRETRAINED)}
        here = figures.setdefault(task, {}).setdefault(f"{labels} scenes", {})
        for score in SCORES[task]:
            values = {arm: [row.test[score] for row in arm_rows] for arm, arm_rows in by_arm.items()}
            for arm, figures_of_arm in values.items():
                here.setdefault(arm, {})[score] = spread(figures_of_arm)
            gains = [after - before for before, after in zip(values[SCRATCH], values[PRETRAINED], strict=True)]
            here.setdefault(GAIN, {})[score] = spread(gains)
    return figures


def _grouped(rows: Sequence[ComparisonRow]) -> Iterator[tuple[str, int, list[ComparisonRow]]]:
    def which(row: ComparisonRow) -> tuple[str, int]:
        return row.task, row.labels

    for (task, labels), group in groupby(sorted(rows, key=lambda row: (*which(row), row.seed)), key=which):
        yield task, labels, list(group)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return mean, minimum and maximum of several runs, to one decimal place."""
    summary = {"value": mean(values), "low": min(values), "high": max(values)}
    return {name: round(value, 1) for name, value in summary.items()} | {"seeds": len(values)}


def _bounds(store: Store, cells: Sequence[Cell]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the blind baseline and the ceiling of each score on test. The baseline is fitted to all labelled
    scenes."""
    test, training = [store.record(index) for index in store.split("test")], list(iterate(store, "train"))
    predicted_by = {cell.task: find_task(cell.task).by_key(read_predictions(cell)) for cell in cells}
    return {
        task: baselines_of(task, predicted, test, training, SCORES[task]) for task, predicted in predicted_by.items()
    }


def baselines_of(
    task: str, predicted: Predicted, records: Sequence[Record], training: Sequence[Record], scores: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """Return the baseline and ceiling of each score: {score: {"blind": ..., "ceiling": ...}}."""
    measured = measure({task: {"": predicted}}, records, training).scores[task][""]
    return {name: {"blind": measured[name].blind, "ceiling": measured[name].ceiling} for name in scores}


def _table(task: str, rows: Sequence[ComparisonRow], baselines: dict[str, dict[str, float | None]]) -> Table:
    table = Table(title=f"{task}: mean of the seeds (least to most)")
    for column in ("scenes", "arm", *SCORES[task]):
        table.add_column(column)
    for name in ("blind", "ceiling"):
        table.add_row("", name, *(f"{baselines[score][name]:.1f}" for score in SCORES[task]))
    for labels, arms in figures_of(rows)[task].items():
        for arm, scores in arms.items():
            table.add_row(labels, arm, *(_shown(scores[score]) for score in SCORES[task]))
    return table


def _shown(summary: dict[str, float]) -> str:
    return f"{summary['value']:.1f} ({summary['low']:.1f} to {summary['high']:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--fast", action="store_true", help="to show that it works, not how well")
    given = parser.parse_args()
    thorough(given.out, ThoroughConfig.of(DemoConfig.fast() if given.fast else DemoConfig()), Console())


if __name__ == "__main__":
    main()
