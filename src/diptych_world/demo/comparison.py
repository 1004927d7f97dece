"""Compare training from scratch with pre-training: same data, a learning rate per arm, early stopping.

A cell is one training run of one arm. Its result is saved in its folder, so a stopped comparison repeats only
unfinished cells.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from diptych.data.store.store import Store
from diptych.runs.distributed import ending_children, workers
from diptych.runs.folder import open_model
from diptych.runs.predict import predict
from diptych.runs.run import FinishedRun, run
from diptych.runs.start import Start
from diptych.runtime.files import saved_json, write_atomically
from diptych.systems import find_recipe

ROW, PREDICTIONS = "row.json", "said.json"


@dataclass(frozen=True)
class Cell:
    """One training run of the comparison, as plain values that can be sent to another process."""

    task: str  # name of a task, a key of TASKS
    arm: str  # name of the arm, such as "from scratch"
    labels: int  # number of labelled images that the arm is trained on
    seed: int
    lr: float
    start: str | None  # model folder that training starts from; None: random weights
    store: str
    out: str
    settings: tuple[str, ...]  # settings of the recipe, such as "training.batch=32"
    system: str = "unified-vlp"
    kept: str | None = None  # path to which the model folder is also copied

    @property
    def folder(self) -> Path:
        return Path(self.out) / f"{self.task}-{self.labels}-{self.arm.replace(' ', '-')}-{self.seed}"

    @property
    def has_run(self) -> bool:
        return (self.folder / ROW).exists() and (self.kept is None or Path(self.kept).exists())


@dataclass(frozen=True)
class ComparisonRow:
    """The result of a cell, with its scores on the test split."""

    task: str  # name of a task, a key of TASKS
    arm: str
    labels: int
    seed: int
    lr: float
    steps: int  # number of steps until the validation score stopped rising
    best_step: int
    val: float
    test: dict[str, float]
    calibration: str | None = None  # a sentence on the calibration of the answers


def compare(cells: Sequence[Cell], processes: int, done: Callable[[ComparisonRow], object]) -> list[ComparisonRow]:
    """Run the cells without a saved result, each in a process with one thread.

    Return all results in the order of `cells`.
    """
    waiting = [cell for cell in cells if not cell.has_run]
    with workers(max(1, min(processes, len(waiting)))) as pool, ending_children():
        for finished in as_completed([pool.submit(run_cell, cell) for cell in waiting]):
            done(finished.result())
    return [read_row(cell) for cell in cells]


def read_row(cell: Cell) -> ComparisonRow:
    return ComparisonRow(**saved_json(cell.folder / ROW, dict))


def run_cell(cell: Cell) -> ComparisonRow:
    """Train and score one cell with one thread; runs in a separate process."""
    store = Store(Path(cell.store))
    made = train_cell(cell, store)
    said = predict(made.model, store, "test")
    write_atomically(cell.folder / PREDICTIONS, json.dumps(said.predictions, ensure_ascii=False).encode())
    of, best = made.result, (made.result.best_step or made.result.step, made.result.best_score or 0.0)
    note = made.model.calibration
    row = ComparisonRow(cell.task, cell.arm, cell.labels, cell.seed, cell.lr, of.step, *best, said.scores, note)
    if cell.kept is not None:
        open_model(cell.folder).save(Path(cell.kept))
    write_atomically(cell.folder / ROW, json.dumps(asdict(row), indent=1).encode())
    return row


def train_cell(cell: Cell, store: Store) -> FinishedRun:
    """Train a cell without reading the test split, so that learning rates can be chosen with this function."""
    torch.set_num_threads(1)
    model = open_model(Path(cell.start)) if cell.start else None
    recipe, _ = Start.of(model).fit(find_recipe(f"{cell.system}/small/{cell.task}"), named=False)
    own = (f"optimizer.lr={cell.lr}", f"training.seed={cell.seed}", f"data.records={cell.labels}")
    return run(recipe.override([*cell.settings, *own]), store, cell.folder, model, Console(quiet=True))


def read_predictions(cell: Cell) -> list[dict[str, Any]]:
    """Return the saved predictions of one training run (`Cell`) for the test split."""
    return saved_json(cell.folder / PREDICTIONS, list)
