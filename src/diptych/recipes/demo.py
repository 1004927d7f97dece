"""The main job, end to end, on drawn pictures: draw, find regions, pre-train, fine-tune, caption and answer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt
from rich.console import Console
from rich.table import Table

from diptych.core import Record
from diptych.files import write_atomically
from diptych.loading.store import Store
from diptych.progress import bar
from diptych.recipes.comparison import Cell, Row, Task, compare
from diptych.recipes.detector import DetectorRecipe, train_detector
from diptych.recipes.folder import open_model
from diptych.recipes.looking import look
from diptych.recipes.recipe import Recipe
from diptych.recipes.run import evaluate, run
from diptych.recipes.unified_vlp import masked_queries
from diptych.sources import storybook
from diptych.sources.anything import read
from diptych.vision.eyes import Eyes

# Chosen on val, once, by `benchmarks/demo_rates.py`: each arm has its own.
RATES = {
    ("caption", "scratch"): 1e-3,
    ("caption", "pre-trained"): 5e-4,
    ("vqa", "scratch"): 1e-3,
    ("vqa", "pre-trained"): 5e-4,
}
TASKS: tuple[Task, ...] = ("caption", "vqa")
PRETRAINED = "pre-trained"


class DemoConfig(BaseModel):
    """How large the world is and how long each stage trains."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    web: PositiveInt = 10_000
    train: PositiveInt = 1000
    val: PositiveInt = 200
    test: PositiveInt = 600
    labels: PositiveInt = 100  # labelled scenes that the arms learn from
    detector_steps: PositiveInt = 1100
    pretrain_steps: PositiveInt = 1200
    most_steps: PositiveInt = 2000  # of an arm; it ends when val has stopped rising
    validate_every: PositiveInt = 50
    patience: PositiveInt = 5
    width: PositiveInt = 128
    layers: PositiveInt = 3
    batch: PositiveInt = 64
    seed: int = 0

    @classmethod
    def fast(cls, seed: int = 0) -> DemoConfig:
        """Under 90 seconds: shows that all parts work, and nothing about how well."""
        return cls(web=600, train=200, val=40, test=60, detector_steps=250, pretrain_steps=150, most_steps=150,
                   width=64, layers=2, batch=32, seed=seed)  # fmt: skip

    @property
    def splits(self) -> dict[str, int]:
        return {"web": self.web, "train": self.train, "val": self.val, "test": self.test}


def demo(out: Path, config: DemoConfig, console: Console) -> dict[str, Any]:
    """Run every stage that is not done yet; hands back what `out/results.json` holds."""
    out.mkdir(parents=True, exist_ok=True)
    times = _Times(out / "seconds.json", console)
    with times.stage("draw"):
        records = _draw(out / "world", config)
    with times.stage("learn to see"):
        eyes = train_detector(DetectorRecipe.of(config.detector_steps, config.seed), out / "detector", console=console)
    with times.stage("find regions"):
        store = _look(out / "store", eyes, records)
    with times.stage("pre-train"):
        pretrained = run(_pretraining(config), store, out / "pretrain", console=console)
    with times.stage("fine-tune both arms"):
        rows = _compare(config, store, pretrained.model.folder, out, console)
    with times.stage("evaluate"):
        for task in TASKS:
            open_model(_folder(out, task, config)).save(out / task)
        captions, _ = evaluate(open_model(out / "caption"), store, "test")
    results = {
        "rows": [asdict(row) for row in rows],
        "seconds": times.seconds,
        "regions": store.contract.extractor,
        "config": config.model_dump(),
    }
    write_atomically(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    _show(rows, captions, {record.key: record for record in records}, times, console)
    return results


def _draw(folder: Path, config: DemoConfig) -> list[Record]:
    """Written and read back in the public forms, as any other data set."""
    with bar("scenes") as progress:
        task = progress.add_task("scenes", total=sum(config.splits.values()))
        storybook.write(folder, config.splits, config.seed, lambda _: progress.advance(task))
    return read(folder)


def _look(folder: Path, eyes: Eyes, records: list[Record]) -> Store:
    with bar("pictures") as progress:
        task = progress.add_task("pictures", total=len(records))
        look(records, eyes, folder, progress=lambda done: progress.advance(task, done))
    return Store(folder)


def _compare(config: DemoConfig, store: Store, start: Path, out: Path, console: Console) -> list[Row]:
    cells = [
        Cell(task, arm, config.labels, config.seed, RATES[task, arm], str(start) if arm == PRETRAINED else None,
             str(store.folder), str(out / "arms"), _settings(config))
        for task in TASKS for arm in ("scratch", PRETRAINED)
    ]  # fmt: skip
    with bar("runs", console) as progress:
        running = progress.add_task("arms", total=len(cells))

        def done(row: Row) -> None:
            progress.advance(running)
            console.print(f"{row.task}, {row.arm}: val stopped rising after {row.best_step} steps")

        return compare(cells, os.cpu_count() or 1, done)


def _folder(out: Path, task: Task, config: DemoConfig) -> Path:
    """Of the pre-trained arm's model."""
    return out / "arms" / f"{task}-{config.labels}-{PRETRAINED}-{config.seed}"


def _settings(config: DemoConfig) -> tuple[str, ...]:
    """Of every arm. Nobody knows when val stops rising, so the rate stays and a running average stands in for decay."""
    return (
        *_size(config),
        f"training.steps={config.most_steps}", f"training.validate_every={config.validate_every}",
        f"training.patience={config.patience}", "training.ema=0.98", "optimizer.schedule=constant",
        f"training.checkpoint_every={config.validate_every}", "training.threads=1",
    )  # fmt: skip


def _size(config: DemoConfig) -> tuple[str, ...]:
    return (
        f"model.width={config.width}", f"model.layers={config.layers}", f"model.ffn={4 * config.width}",
        f"training.batch={config.batch}",
    )  # fmt: skip


def _pretraining(config: DemoConfig) -> Recipe:
    return masked_queries("small").override([
        *_size(config), f"training.steps={config.pretrain_steps}", f"training.seed={config.seed}", "data.split=web",
        "training.validate_every=200", "training.checkpoint_every=200",
    ])  # fmt: skip


def _show(
    rows: list[Row], captions: list[dict[str, Any]], records: dict[str, Record], times: _Times, console: Console
) -> None:
    table = Table(title="On the test split", title_justify="left")
    for column in ("task", "arm", "score", "value"):
        table.add_column(column)
    for row in rows:
        for name, value in row.test.items():
            table.add_row(row.task, row.arm, name, f"{value:.1f}")
    console.print(table)
    for prediction in captions[:3]:
        console.print(f"{records[prediction['key']].picture}: {prediction['caption']}")
    console.print(f"all stages took {sum(times.seconds.values()):.0f} s: " + times.summary())


class _Times:
    """Seconds of each stage, over all the times that it was gone on with."""

    def __init__(self, path: Path, console: Console) -> None:
        self.path, self.console = path, console
        self.seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.console.rule(name, align="left")
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - began, 1)
            write_atomically(self.path, json.dumps(self.seconds).encode())

    def summary(self) -> str:
        return ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.seconds.items())
