"""The demo: draw images, detect regions, pre-train, fine-tune, predict captions and answers.

OUT/world, detector, store     drawn and extracted once, for all systems
OUT/pretrain, arms, ...        Unified VLP, the default
OUT/NAME/pretrain, arms, ...   any other system
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt
from rich.console import Console

from diptych.core.folders import DETECTOR, INNER
from diptych.data.extract.own_data import extract_regions
from diptych.data.formats.table import read
from diptych.data.leakage import SeenImages, leakage
from diptych.data.store.store import Store, iterate
from diptych.runs.distributed import in_process, together
from diptych.runs.reports.html import FILE as PAGE
from diptych.runs.reports.html import link_pages, write_report
from diptych.runs.reports.report import Report
from diptych.runs.reports.tables import score_table
from diptych.runs.run import run
from diptych.runtime.claims import claim_settings
from diptych.runtime.devices import choose_ranks
from diptych.runtime.errors import counted
from diptych.runtime.files import saved_json, write_atomically
from diptych.runtime.processes import PROCESSES, peak_memory
from diptych.runtime.progress import bar
from diptych.runtime.terminal import heading
from diptych.systems import SYSTEMS
from diptych.systems.recipe import Recipe
from diptych.tasks import find_task
from diptych.tasks.spec import Predicted
from diptych.vision.detectors.load import load_detector
from diptych_world.demo.comparison import Cell, ComparisonRow, compare, read_predictions
from diptych_world.demo.detector import DetectorRecipe, train_detector
from diptych_world.demo.measure import MeasuredScores, measure
from diptych_world.demo.page import TITLE, demo_report
from diptych_world.demo.systems import DEFAULT, begin_with, layers_of, tasks_of
from diptych_world.files import write as write_world

# {(task, arm): learning rate}: the best of four on val, with 100 labelled images and a seed that the demo does not use
# (experiments/rates.py). They were tuned for Unified VLP, and other systems use them too. The rates of "nlvr" are
# copies of those of "vqa".
RATES: dict[tuple[str, str], float] = {
    ("caption", "from scratch"): 5e-4,
    ("caption", "pre-trained"): 2.5e-4,
    ("vqa", "from scratch"): 1e-3,
    ("vqa", "pre-trained"): 1e-3,
    ("nlvr", "from scratch"): 1e-3,
    ("nlvr", "pre-trained"): 1e-3,
}
# {task: (steps, learning rate)} for training on all labelled images, and for all arms of "vqa". They hold for Muon and
# decay to 0 (experiments/LOG.md).
ALL_LABELS: dict[str, tuple[int, float]] = {"caption": (200, 5e-4), "vqa": (1200, 2e-3), "nlvr": (600, 2e-3)}
TASKS = tasks_of(DEFAULT)
DEMO, RESULTS = "demo.json", "results.json"  # files: settings of the demo, results of a system
SCRATCH, PRETRAINED = "from scratch", "pre-trained"  # the two arms that are compared; both have few labels
ALL = "pre-trained, all labels"
SHARED_STAGES = ("draw", "train detector", "extract regions")


class DemoConfig(BaseModel):
    """Number of drawn images, training steps of each stage, and model size."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    web: PositiveInt = 10_000
    train: PositiveInt = 1000
    val: PositiveInt = 200
    test: PositiveInt = 600
    labels: PositiveInt = 100  # number of labelled images per arm, except for "vqa"
    # Number of labelled images per arm for "vqa". With 100, counting scores below the blind baseline.
    question_labels: PositiveInt = 500
    detector_steps: PositiveInt = 900
    pretrain_steps: PositiveInt = 1200
    # Maximum number of steps of an arm with `labels` images. It stops earlier if the score on val does not rise.
    most_steps: PositiveInt = 2000
    taught: PositiveFloat = 1.0  # factor for the numbers of steps in ALL_LABELS
    validate_every: PositiveInt = 50
    patience: PositiveInt = 5
    width: PositiveInt = 128
    layers: PositiveInt = 3
    batch: PositiveInt = 64  # batch size of pre-training
    arm_batch: PositiveInt = 32
    seed: int = 0

    @classmethod
    def fast(cls, seed: int = 0) -> DemoConfig:
        """Return a configuration that runs all stages in one or two minutes. Scores are poor."""
        return cls(web=600, train=200, val=40, test=60, question_labels=100, detector_steps=140, pretrain_steps=300,
                   most_steps=150, taught=0.25, width=64, layers=2, batch=32, seed=seed)  # fmt: skip

    @property
    def splits(self) -> dict[str, int]:
        return {"web": self.web, "train": self.train, "val": self.val, "test": self.test}


def demo(out: Path, config: DemoConfig, console: Console, system: str = DEFAULT) -> dict[str, Any]:
    """Run all stages that are not done yet. Return the contents of the system's `results.json`."""
    tasks = tasks_of(system)  # raises an error for an unknown system before any image is drawn
    times = Times(out / "stages.json", console)
    store = extract_world(out, config, times)
    home = home_of(out, system)
    if system != DEFAULT:
        times = times.for_system(home / "stages.json")
    with times.stage("pre-train"):
        start = pretrain_in_ranks(pretraining_recipe(config, config.seed, system), store, home / "pretrain")
    cells = cells_of(config, store, start, home, system)
    with times.stage("fine-tune"):
        rows = run_cells(cells, console)
    with times.stage("evaluate"):
        measured = _measure(cells, store, tasks)
    settings = ({} if system == DEFAULT else {"system": system}) | config.model_dump()
    results = {
        "scores": {t: {arm: scores.to_json() for arm, scores in arms.items()} for t, arms in measured.scores.items()},
        "gains": {task: gain.to_json() for task, gain in measured.gains.items()},
        "runs": [asdict(row) for row in rows],
        "seconds": times.seconds,
        "memory_mib": times.memory,
        "regions": store.contract.extractor,
        "config": settings,
    }
    _report(home, measured, rows, cells, store, times, {"detector": out / "detector"}, settings)
    write_atomically(home / RESULTS, (json.dumps(results, indent=2) + "\n").encode())
    _link(out)
    _show(measured, times, console)
    console.print(f"the report, with images: {home / PAGE}")
    return results


def home_of(out: Path, system: str) -> Path:
    """Return the folder with the demo's results of a system."""
    return out if system == DEFAULT else out / system


def extract_world(out: Path, config: DemoConfig, times: Times) -> Store:
    """Draw the images, train the detector and extract the regions."""
    claim_demo(out, config)
    with times.stage("draw"):
        _draw(out / "world", config)
    with times.stage("train detector"):
        in_process(_train_detector, DetectorRecipe.of(config.detector_steps, config.seed), out / "detector")
    with times.stage("extract regions"):
        records = read(out / "world")  # the drawn world is read like any other data set, from files in public formats
        extract_regions(records, load_detector(out / "detector" / DETECTOR), out / "store", times.console)
    return Store(out / "store")


def claim_demo(out: Path, config: DemoConfig) -> None:
    """Write the settings of this demo to `out`. Raises RecipeError if the folder holds a demo with other settings."""
    claim_settings(out, DEMO, "demo", config.model_dump(mode="json"), "a demo of another size")


def pretrain_in_ranks(recipe: Recipe, store: Store, out: Path) -> Path:
    """Pre-train with one process per core or GPU. Return the model folder."""
    together(_pretrain, recipe, store.folder, out, processes=choose_ranks(recipe.training.device, PROCESSES))
    return out / INNER


def _pretrain(recipe: Recipe, store: Path, out: Path) -> None:
    run(recipe, Store(store), out)


def _draw(folder: Path, config: DemoConfig) -> None:
    with bar("scenes") as progress:
        task = progress.add_task("scenes", total=sum(config.splits.values()))
        write_world(folder, config.splits, config.seed, lambda done: progress.advance(task, done), PROCESSES)


def _train_detector(recipe: DetectorRecipe, folder: Path) -> None:
    """Train the detector in a single process, so that batch norm sees the whole batch."""
    train_detector(recipe, folder)


def cells_of(config: DemoConfig, store: Store, start: Path, home: Path, system: str) -> list[Cell]:
    """List the training runs. VQA is first because it takes longest; at the end it would run alone."""
    few, cells = arm_settings(config, config.labels, system), []
    for task in sorted(tasks_of(system), key="vqa".__ne__):
        rate, full = ALL_LABELS[task][1], all_labels_settings(config, task, system)
        arms = {
            SCRATCH: (config.labels, RATES[task, SCRATCH], None, few),
            PRETRAINED: (config.labels, RATES[task, PRETRAINED], str(start), few),
            ALL: (config.train, rate, str(start), full),
        }
        if task == "vqa":
            arms |= {arm: (config.question_labels, rate, arms[arm][2], full) for arm in (SCRATCH, PRETRAINED)}
        for arm, (labels, rate, begin, settings) in arms.items():
            places, kept = (str(store.folder), str(home / "arms")), str(home / task) if arm == ALL else None
            cells.append(Cell(task, arm, labels, config.seed, rate, begin, *places, settings, system, kept))
    return cells


def run_cells(cells: list[Cell], console: Console) -> list[ComparisonRow]:
    with bar("runs", console) as progress:
        running = progress.add_task("arms", total=len(cells))

        def done(row: ComparisonRow) -> None:
            progress.advance(running)
            best = f"best on val after {counted(row.best_step, 'steps')}"
            console.print(f"{row.task} with {counted(row.labels, 'scenes')}, {row.arm}: {best}")

        return compare(cells, PROCESSES, done)


def _measure(cells: list[Cell], store: Store, tasks: Sequence[str]) -> MeasuredScores:
    """Score the cells' predictions.

    Ceilings and blind baselines are included; the latter are fitted to all labelled scenes.
    """
    predictions: dict[str, dict[str, Predicted]] = {task: {} for task in tasks}
    for cell in cells:
        predictions[cell.task][cell.arm] = find_task(cell.task).by_key(read_predictions(cell))
    test = [store.record(index) for index in store.split("test")]
    measured = measure(predictions, test, list(iterate(store, "train")))
    scores = {task: dict(arms) for task, arms in measured.scores.items()}
    for cell in cells:
        trained_on = leakage(SeenImages.load(cell.folder / INNER), store, store.split("test"))
        scores[cell.task][cell.arm] = replace(scores[cell.task][cell.arm], trained_on=trained_on)
    return replace(measured, scores=scores)


def _report(
    home: Path, measured: MeasuredScores, rows: list[ComparisonRow], cells: list[Cell], store: Store, times: Times,
    shared: Mapping[str, Path], configuration: dict[str, Any],
) -> None:  # fmt: skip
    runs: dict[str, dict[str, Path]] = {name: {"": folder} for name, folder in shared.items()}
    runs["pretrain"] = {"": home / "pretrain"}
    notes: dict[str, dict[str, str]] = {}
    system = cells[0].system
    for cell, row in zip(cells, rows, strict=True):
        runs.setdefault(cell.task, {})[cell.arm] = cell.folder
        chosen = "chosen on val beforehand" if system == DEFAULT else "chosen for Unified VLP, not for this system"
        row_text = (
            f"{counted(row.labels, 'labelled scenes')}; learning rate {row.lr:g}, {chosen}; best on val after "
            f"{counted(row.best_step, 'steps')}"
        )
        notes.setdefault(cell.task, {})[cell.arm] = "; ".join(filter(None, [row_text, row.calibration]))
    title = TITLE if system == DEFAULT else f"{TITLE}: {SYSTEMS[system].title}"
    names, seconds, memory = store.contract.class_names, times.seconds, times.memory
    write_report(home / PAGE, demo_report(measured, names, runs, seconds, memory, configuration, notes, title))


def _link(out: Path) -> None:
    """Link the reports of all systems that were run with each other. `out/report.html` is the default system's."""
    run = [system for system in SYSTEMS if (home_of(out, system) / RESULTS).exists()]
    pages = {SYSTEMS[system].title: home_of(out, system) / PAGE for system in run}
    front = out / PAGE
    if not (out / RESULTS).exists():
        write_report(front, Report(TITLE, "Each system that was run has a page of its own."))
    link_pages(pages, front)


def arm_settings(config: DemoConfig, labels: int, system: str = DEFAULT) -> tuple[str, ...]:
    """Return the settings of the arms with few labels. The arms of "vqa" do not use them (see `all_labels_settings`).

    Early stopping ends training, so the learning rate cannot decay. It is constant, and the weights are averaged (EMA)
    instead. With more labelled scenes, validation is less frequent and the average is longer. AdamW is used because
    RATES were chosen for it.
    """
    every = max(config.validate_every, labels // 5)
    return (
        *sizes(config, system), f"training.batch={config.arm_batch}", "optimizer.kind=adamw",
        f"training.steps={config.most_steps * max(1, labels // config.labels)}", f"training.validate_every={every}",
        f"training.patience={config.patience}", f"training.ema={1 - 1 / every}", "optimizer.schedule=constant",
        f"training.checkpoint_every={every}", "training.threads=1",
    )  # fmt: skip


def all_labels_settings(config: DemoConfig, task: str, system: str) -> tuple[str, ...]:
    """Return the settings of a run with a fixed number of steps, which is validated four times."""
    steps = max(4, round(ALL_LABELS[task][0] * config.taught))
    every = -(-steps // 4)
    return (
        *sizes(config, system), f"training.batch={config.arm_batch}", f"training.steps={steps}",
        f"training.validate_every={every}", f"training.checkpoint_every={every}", "training.threads=1",
    )  # fmt: skip


def sizes(config: DemoConfig, system: str) -> tuple[str, ...]:
    """Return the settings of the model's size, the pre-training batch and the number of validation records."""
    return (
        f"model.width={config.width}", *layers_of(system, config.layers), f"model.ffn={4 * config.width}",
        f"training.batch={config.batch}", "data.validation_records=200",
    )  # fmt: skip


def pretraining_recipe(config: DemoConfig, seed: int, system: str = DEFAULT) -> Recipe:
    return begin_with(system).override([
        *sizes(config, system), f"training.steps={config.pretrain_steps}", f"training.seed={seed}", "data.split=web",
        "training.validate_every=500", "training.checkpoint_every=500",
    ])  # fmt: skip


def _show(measured: MeasuredScores, times: Times, console: Console) -> None:
    for arms in measured.scores.values():
        for arm, scores in arms.items():
            heading(console, arm)
            console.print(score_table(scores))
    for task, gain in measured.gains.items():
        console.print(f"{task}: pre-training gains {gain.value:+.1f} {gain.name} ({gain.low:.1f} to {gain.high:.1f})")
    stages = ", ".join(f"{name} {seconds:.0f}" for name, seconds in times.seconds.items())
    console.print(f"all stages took {sum(times.seconds.values()):.0f} s: {stages}")


class Times:
    """Duration and peak memory of each stage. If a stage is resumed, its durations are added up."""

    def __init__(self, path: Path, console: Console, shared: Times | None = None) -> None:
        """`shared` has the times of the stages that all systems share: drawing, detector, extraction."""
        self.path, self.console = path, console
        kept = saved_json(path, dict) if path.exists() else {}
        self.seconds: dict[str, float] = kept.get("seconds", {})
        self.memory: dict[str, float] = kept.get("memory_mib", {})
        if shared is not None:
            self.seconds = {name: shared.seconds[name] for name in SHARED_STAGES} | self.seconds
            self.memory = {name: shared.memory[name] for name in SHARED_STAGES} | self.memory

    def for_system(self, path: Path) -> Times:
        """Return the times of another system. They include the times of the shared stages."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return Times(path, self.console, self)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        heading(self.console, name)
        began = time.perf_counter()
        with peak_memory() as peak:
            try:
                yield
            finally:
                self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - began, 1)
                self.memory[name] = round(max(peak[0], self.memory.get(name, 0)))
                kept = {"seconds": self.seconds, "memory_mib": self.memory}
                write_atomically(self.path, json.dumps(kept).encode())
