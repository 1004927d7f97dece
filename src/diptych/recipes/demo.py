"""The main job, end to end, on drawn pictures: draw, find regions, pre-train, fine-tune, caption and answer."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt
from rich.console import Console

from diptych.errors import RecipeError
from diptych.files import write_atomically
from diptych.loading.store import Store, iterate
from diptych.processes import PROCESSES
from diptych.progress import bar
from diptych.recipes.apart import apart, together
from diptych.recipes.comparison import Cell, Row, Task, compare, read_said
from diptych.recipes.detector import DetectorRecipe, train_detector
from diptych.recipes.folder import EYES, INNER, open_model
from diptych.recipes.looking import look
from diptych.recipes.recipe import Recipe
from diptych.recipes.reporting import Measured, measure, report_arms, said_by
from diptych.recipes.run import run
from diptych.recipes.unified_vlp import masked_queries
from diptych.reports.tables import score_table
from diptych.sources import storybook
from diptych.sources.anything import read
from diptych.vision.load import load_eyes

# The best of four on val, with 100 labelled scenes and a seed that the demo does not use (benchmarks/rates.py).
RATES = {
    ("caption", "from scratch"): 5e-4,
    ("caption", "pre-trained"): 2.5e-4,
    ("vqa", "from scratch"): 1e-3,
    ("vqa", "pre-trained"): 1e-3,
}
TASKS: tuple[Task, ...] = ("caption", "vqa")
DEMO = "demo.json"  # what the folder was begun with
SCRATCH, PRETRAINED = "from scratch", "pre-trained"


class DemoConfig(BaseModel):
    """How large the world is and how long each stage trains."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    web: PositiveInt = 10_000
    train: PositiveInt = 1000
    val: PositiveInt = 200
    test: PositiveInt = 600
    labels: PositiveInt = 100  # labelled scenes that the arms learn from
    detector_steps: PositiveInt = 900
    pretrain_steps: PositiveInt = 2000
    most_steps: PositiveInt = 2000  # of an arm on `labels` scenes; it ends when val has stopped rising
    validate_every: PositiveInt = 50
    patience: PositiveInt = 5
    width: PositiveInt = 128
    layers: PositiveInt = 3
    batch: PositiveInt = 64  # of pre-training
    arm_batch: PositiveInt = 32
    seed: int = 0

    @classmethod
    def fast(cls, seed: int = 0) -> DemoConfig:
        """Under 90 seconds: shows that all parts work, and nothing about how well."""
        return cls(web=600, train=200, val=40, test=60, detector_steps=140, pretrain_steps=300, most_steps=150,
                   width=64, layers=2, batch=32, seed=seed)  # fmt: skip

    @property
    def splits(self) -> dict[str, int]:
        return {"web": self.web, "train": self.train, "val": self.val, "test": self.test}


def demo(out: Path, config: DemoConfig, console: Console) -> dict[str, Any]:
    """Run every stage that is not done yet; hands back what `out/results.json` holds."""
    times = Times(out / "stages.json", console)
    store = see_world(out, config, times)
    with times.stage("pre-train"):
        start = pretrain(pretraining(config, config.seed), store, out / "pretrain")
    cells = _cells(config, store, start, out)
    with times.stage("fine-tune both arms", at_once=PROCESSES):
        rows = run_cells(cells, console)
    with times.stage("evaluate"):
        measured = _measure(cells, store)
        for cell in cells:
            if cell.arm == PRETRAINED:
                open_model(cell.folder).save(out / cell.task)
    results = {
        "scores": {t: {arm: scores.to_json() for arm, scores in arms.items()} for t, arms in measured.scores.items()},
        "gains": {task: gain.to_json() for task, gain in measured.gains.items()},
        "runs": [asdict(row) for row in rows],
        "seconds": times.seconds,
        "memory_mib": times.memory,
        "regions": store.contract.extractor,
        "config": config.model_dump(),
    }
    write_atomically(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    page = _report(out, measured, rows, cells, store, times, config)
    _show(measured, times, console)
    console.print(f"the report, with pictures: {page}")
    return results


def see_world(out: Path, config: DemoConfig, times: Times) -> Store:
    """Draw the pictures, train the eyes and find the regions."""
    claim(out, config)
    with times.stage("draw"):
        apart(_draw, out / "world", config)
    with times.stage("learn to see"):
        recipe = DetectorRecipe.of(config.detector_steps, config.seed)
        apart(_learn_to_see, recipe, out / "detector")
    with times.stage("find regions"):
        apart(_look, out / "world", out / "detector" / EYES, out / "store")
    return Store(out / "store")


def claim(out: Path, config: DemoConfig) -> None:
    """Make `out` the folder of this demo, before anything is drawn. Raises RecipeError where it is another's."""
    mine = config.model_dump(mode="json")
    if (out / DEMO).exists():
        theirs = json.loads((out / DEMO).read_text("utf-8"))
        differ = [name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)]
        if differ:
            lines = "".join(f"\n  {name}: {mine.get(name)}, was {theirs.get(name)}" for name in differ)
            raise RecipeError(
                f"{out} holds a demo of another size:{lines}\ngive the same options (--fast, --seed) to go on with it, "
                f"another --out to begin anew, or delete {out}"
            )
        return
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / DEMO, (json.dumps(mine, indent=2) + "\n").encode())


def pretrain(recipe: Recipe, store: Store, out: Path) -> Path:
    """On all cores; the model folder."""
    together(_pretrain, recipe, store.folder, out, processes=PROCESSES)
    return out / INNER


def _pretrain(recipe: Recipe, store: Path, out: Path) -> None:
    run(recipe, Store(store), out)


def _draw(folder: Path, config: DemoConfig) -> None:
    with bar("scenes") as progress:
        task = progress.add_task("scenes", total=sum(config.splits.values()))
        storybook.write(folder, config.splits, config.seed, lambda done: progress.advance(task, done), PROCESSES)


def _learn_to_see(recipe: DetectorRecipe, folder: Path) -> None:
    """In one process, however many cores there are, so that batch norms see the whole batch."""
    train_detector(recipe, folder)


def _look(world: Path, eyes: Path, folder: Path) -> None:
    """The world is read back in the public forms, as any other data set."""
    records = read(world)
    with bar("pictures") as progress:
        task = progress.add_task("pictures", total=len(records))
        look(records, load_eyes(eyes), folder, progress=lambda done: progress.advance(task, done))


def _cells(config: DemoConfig, store: Store, start: Path, out: Path) -> list[Cell]:
    return [
        Cell(task, arm, config.labels, config.seed, RATES[task, arm], str(start) if arm == PRETRAINED else None,
             str(store.folder), str(out / "arms"), arm_settings(config, config.labels))
        for task in TASKS for arm in (SCRATCH, PRETRAINED)
    ]  # fmt: skip


def run_cells(cells: list[Cell], console: Console) -> list[Row]:
    with bar("runs", console) as progress:
        running = progress.add_task("arms", total=len(cells))

        def done(row: Row) -> None:
            progress.advance(running)
            console.print(
                f"{row.task} with {row.labels} scenes, {row.arm}: val stopped rising after {row.best_step} steps"
            )

        return compare(cells, PROCESSES, done)


def _measure(cells: list[Cell], store: Store) -> Measured:
    """Beside blind baselines, which know the words of all labelled scenes, and ceilings."""
    said: dict[str, dict[str, dict[str, str]]] = {task: {} for task in TASKS}
    for cell in cells:
        said[cell.task][cell.arm] = said_by(cell.task, read_said(cell))
    test = [store.record(index) for index in store.split("test")]
    return measure(said, test, list(iterate(store, "train")))


def _report(
    out: Path, measured: Measured, rows: list[Row], cells: list[Cell], store: Store, times: Times, config: DemoConfig
) -> Path:
    runs: dict[str, dict[str, Path]] = {"detector": {"": out / "detector"}, "pretrain": {"": out / "pretrain"}}
    notes: dict[str, dict[str, str]] = {}
    for cell, row in zip(cells, rows, strict=True):
        runs.setdefault(cell.task, {})[cell.arm] = cell.folder
        told = f"learning rate {row.lr:g}, chosen on val beforehand; {row.best_step} steps until val stopped rising"
        notes.setdefault(cell.task, {})[cell.arm] = told
    names, seconds = store.contract.class_names, times.seconds
    return report_arms(out, measured, names, runs, seconds, config.model_dump(), notes, times.memory)


def arm_settings(config: DemoConfig, labels: int) -> tuple[str, ...]:
    """Of every arm. Nobody knows when val stops rising, so the rate stays and a running average stands in for decay.

    It is looked at as often, and averaged over as long, as the labelled scenes are many.
    """
    every = max(config.validate_every, labels // 5)
    return (
        *_size(config), f"training.batch={config.arm_batch}",
        f"training.steps={config.most_steps * max(1, labels // config.labels)}", f"training.validate_every={every}",
        f"training.patience={config.patience}", f"training.ema={1 - 1 / every}", "optimizer.schedule=constant",
        f"training.checkpoint_every={every}", "training.threads=1",
    )  # fmt: skip


def _size(config: DemoConfig) -> tuple[str, ...]:
    return (
        f"model.width={config.width}", f"model.layers={config.layers}", f"model.ffn={4 * config.width}",
        f"training.batch={config.batch}",
    )  # fmt: skip


def pretraining(config: DemoConfig, seed: int) -> Recipe:
    return masked_queries("small").override([
        *_size(config), f"training.steps={config.pretrain_steps}", f"training.seed={seed}", "data.split=web",
        "training.validate_every=200", "training.checkpoint_every=200",
    ])  # fmt: skip


def _show(measured: Measured, times: Times, console: Console) -> None:
    for arms in measured.scores.values():
        for arm, scores in arms.items():
            console.rule(arm, align="left")
            console.print(score_table(scores))
    for task, gain in measured.gains.items():
        console.print(f"{task}: pre-training gains {gain.value:+.1f} {gain.name} ({gain.low:.1f} to {gain.high:.1f})")
    console.print(f"all stages took {sum(times.seconds.values()):.0f} s: " + times.summary())


class Times:
    """Seconds of each stage, over all the times that it was gone on with."""

    def __init__(self, path: Path, console: Console) -> None:
        self.path, self.console = path, console
        kept = json.loads(path.read_text()) if path.exists() else {}
        self.seconds: dict[str, float] = kept.get("seconds", {})
        self.memory: dict[str, float] = kept.get("memory_mib", {})

    @contextmanager
    def stage(self, name: str, at_once: int = 1) -> Iterator[None]:
        """`at_once` processes share the work of the stage."""
        self.console.rule(name, align="left")
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - began, 1)
            # Of this process and of the largest of those it has started so far, in KiB on Linux: an upper bound.
            own, other = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            self.memory[name] = round((own + at_once * other) / 1024)
            write_atomically(self.path, json.dumps({"seconds": self.seconds, "memory_mib": self.memory}).encode())

    def summary(self) -> str:
        return ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.seconds.items())
