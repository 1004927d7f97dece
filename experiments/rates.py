"""Find the learning rate of each arm of the demo: the best score on val; test is not scored.

    uv run python -m experiments.rates DEMO_FOLDER SCRATCH_FOLDER [LABELS]

Writes experiments/results/rates_LABELS.json.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from diptych.data.store.store import Store
from diptych.runs.distributed import workers
from diptych_world.demo.comparison import Cell, train_cell
from diptych_world.demo.demo import PRETRAINED, SCRATCH, TASKS, DemoConfig, arm_settings
from experiments.figures import save

RATES = (2.5e-4, 5e-4, 1e-3, 2e-3)
SEED = 100  # a seed that neither the demo nor experiments.thorough uses


def compare_rates(demo: Path, out: Path, labels: int) -> None:
    store, settings = demo / "store", arm_settings(DemoConfig(), labels)
    start = str(demo / "pretrain")
    cells = [
        Cell(
            task,
            arm,
            labels,
            SEED,
            lr,
            start if arm == PRETRAINED else None,
            str(store),
            str(out / f"{lr:g}"),
            settings,
        )
        for task in TASKS
        for arm in (SCRATCH, PRETRAINED)
        for lr in RATES
    ]
    figures: dict[str, Any] = {}
    with workers(2) as pool:
        for cell, (score, step) in zip(cells, pool.map(_val, cells), strict=True):
            found = {"best on val": round(score, 1), "steps": step}
            figures.setdefault(f"{cell.task}, {cell.arm}", {})[f"{cell.lr:g}"] = found
            print(cell.task, cell.arm, f"{cell.lr:g}", found, flush=True)
    save(f"rates_{labels}", f"python -m experiments.rates {demo} {out} {labels}", figures)


def _val(cell: Cell) -> tuple[float, int]:
    result = train_cell(cell, Store(Path(cell.store))).result
    return result.best_score or 0.0, result.best_step or 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="a finished `diptych demo`")
    parser.add_argument("out", type=Path, help="folder for the runs; repeat the command to resume")
    parser.add_argument("labels", type=int, nargs="?", default=100, help="labelled scenes (default: 100)")
    given = parser.parse_args()
    compare_rates(given.demo, given.out, given.labels)


if __name__ == "__main__":  # imported by name: other processes cannot import __main__
    import_module("experiments.rates").main()
