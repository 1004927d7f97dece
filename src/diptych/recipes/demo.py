"""The main job, end to end, on drawn pictures: draw, find regions, pre-train, fine-tune, caption and answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt
from rich.console import Console
from rich.table import Table

from diptych.core import Record
from diptych.files import write_atomically
from diptych.loading.store import Store
from diptych.progress import bar
from diptych.recipes.detector import DetectorRecipe, train_detector
from diptych.recipes.looking import look
from diptych.recipes.recipe import Recipe
from diptych.recipes.run import Run, evaluate, run
from diptych.recipes.unified_vlp import masked_queries, small
from diptych.sources import storybook
from diptych.sources.anything import read
from diptych.vision.eyes import Eyes


class DemoConfig(BaseModel):
    """How large the world is and how long each stage trains."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    web: PositiveInt = 10_000
    train: PositiveInt = 1000
    val: PositiveInt = 200
    test: PositiveInt = 600
    detector_steps: PositiveInt = 500
    pretrain_steps: PositiveInt = 1200
    caption_steps: PositiveInt = 1200
    vqa_steps: PositiveInt = 1200
    width: PositiveInt = 128
    layers: PositiveInt = 3
    batch: PositiveInt = 64
    seed: int = 0

    @classmethod
    def fast(cls, seed: int = 0) -> DemoConfig:
        """Under 90 seconds: shows that all parts work, and nothing about how well."""
        return cls(web=600, train=200, val=40, test=60, detector_steps=100, pretrain_steps=150, caption_steps=150,
                   vqa_steps=150, width=64, layers=2, batch=32, seed=seed)  # fmt: skip

    @property
    def splits(self) -> dict[str, int]:
        return {"web": self.web, "train": self.train, "val": self.val, "test": self.test}


def demo(out: Path, config: DemoConfig, console: Console) -> dict[str, Any]:
    """Run every stage that is not done yet; hands back what `out/results.json` holds."""
    out.mkdir(parents=True, exist_ok=True)
    times: dict[str, float] = {}
    with _stage("draw", times, console):
        records = _draw(out / "world", config)
    with _stage("learn to see", times, console):
        eyes = train_detector(_detector(config), out / "detector", console=console)
    with _stage("find regions", times, console):
        store = _look(out / "store", eyes, records)
    with _stage("pre-train", times, console):
        pretrained = run(_sized(masked_queries("small"), config, "web", config.pretrain_steps), store, out / "pretrain",
                         console=console)  # fmt: skip
    with _stage("fine-tune: captions", times, console):
        captioner = _finetune("caption", config, config.caption_steps, store, out, pretrained, console)
    with _stage("fine-tune: questions", times, console):
        answerer = _finetune("vqa", config, config.vqa_steps, store, out, pretrained, console)
    with _stage("evaluate", times, console):
        captions, caption_scores = evaluate(captioner.model, store, "test")
        answers, answer_scores = evaluate(answerer.model, store, "test")
    results = {
        "caption": caption_scores,
        "vqa": answer_scores,
        "seconds": times,
        "regions": store.contract.extractor,
        "config": config.model_dump(),
    }
    write_atomically(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    write_atomically(out / "captions.json", json.dumps(captions, indent=1).encode())
    write_atomically(out / "answers.json", json.dumps(answers, indent=1).encode())
    _show(results, captions, {r.key: r for r in records}, console)
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


def _finetune(task: Any, config: DemoConfig, steps: int, store: Store, out: Path, start: Run, console: Console) -> Run:
    return run(_sized(small(task), config, "train", steps), store, out / task, start=start.model, console=console)


def _detector(config: DemoConfig) -> DetectorRecipe:
    recipe = DetectorRecipe(seed=config.seed)
    return recipe.model_copy(
        update={"training": recipe.training.model_copy(update={"steps": config.detector_steps, "seed": config.seed})}
    )


def _sized(recipe: Recipe, config: DemoConfig, split: str, steps: int) -> Recipe:
    return recipe.override([
        f"model.width={config.width}", f"model.layers={config.layers}", f"model.ffn={4 * config.width}",
        f"training.steps={steps}", f"training.batch={config.batch}", f"training.seed={config.seed}",
        f"training.validate_every={max(steps // 5, 1)}", f"training.checkpoint_every={max(steps // 5, 1)}",
        f"data.split={split}",
    ])  # fmt: skip


def _show(
    results: dict[str, Any], captions: list[dict[str, Any]], records: dict[str, Record], console: Console
) -> None:
    table = Table(title="On the test split", title_justify="left")
    for column in ("task", "score", "value"):
        table.add_column(column)
    for task in ("caption", "vqa"):
        for name, value in results[task].items():
            table.add_row(task, name, f"{value:.1f}")
    console.print(table)
    for prediction in captions[:3]:
        console.print(f"{records[prediction['key']].picture}: {prediction['caption']}")
    total = sum(results["seconds"].values())
    console.print(f"all stages took {total:.0f} s: " + ", ".join(f"{n} {s:.0f}" for n, s in results["seconds"].items()))


@contextmanager
def _stage(name: str, times: dict[str, float], console: Console) -> Iterator[None]:
    console.rule(name, align="left")
    began = time.perf_counter()
    yield
    times[name] = round(time.perf_counter() - began, 1)
