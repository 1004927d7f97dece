"""Measure the samples per second that the loader delivers and that training uses, with one thread each.

    uv run python -m benchmarks.feeding

The run is the demo's pre-training: a small Unified VLP on scenes with 3 to 9 regions of 128 features, 64 per step. Two
limits are timed too: copying the bytes of the store, and the network on batches made before. The parts run in turn for
five rounds; figures are medians. Takes less than a minute. Writes benchmarks/results/feeding.json.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch
from rich.console import Console

from benchmarks.machine import save_result
from diptych.core import FeatureContract, Record, Regions
from diptych.data.store.store import Store, StoreWriter
from diptych.runs.learner import Learner
from diptych.runs.run import learner_of
from diptych.runs.run_folder import RunFolder
from diptych.runs.start import Nothing
from diptych.runtime.devices import autocast
from diptych.training import train
from diptych.training.auto import chosen_precision
from diptych.training.config import TrainingConfig
from diptych.training.optimizer import build_optimizer
from diptych_world.book import record
from diptych_world.demo.demo import DemoConfig, pretraining_recipe
from diptych_world.demo.detector import storybook_shape
from diptych_world.layout import scene

SCENES, STEPS, ROUNDS = 1500, 20, 5
CPU = torch.device("cpu")
CONTRACT = FeatureContract("made up", "", 128, storybook_shape().class_names, whole=True)


def regions(number: int) -> Regions:
    count = Random(number).randint(3, 9)
    generator = torch.Generator().manual_seed(number)
    corners = torch.rand(count, 2, 2, generator=generator).sort(1).values.flatten(1)
    return Regions(
        boxes=corners,
        scores=torch.rand(count, generator=generator),
        size=(160, 160),
        classes=torch.rand(count, len(CONTRACT.class_names), generator=generator).softmax(1),
        features=torch.rand(count, CONTRACT.feature_size, generator=generator),
        whole=torch.rand(CONTRACT.feature_size, generator=generator),
    )


def written(folder: Path) -> Store:
    with StoreWriter(folder, CONTRACT) as writer:
        for number in range(SCENES):
            told = record(scene(0, "web", number))
            writer.add(Record(told.key, "web", size=(160, 160), captions=told.captions, regions=regions(number)))
    return Store(folder)


def parts(chosen: Learner, store: Store, root: Path) -> dict[str, Callable[[], int]]:
    """Return the functions to measure, by name. Each returns its number of samples."""
    loader, training = chosen.batches(), chosen.recipe.training
    made = [loader.at(step, 0, 1).to(CPU) for step in range(STEPS)]
    model = chosen.architecture.build()
    optimizer = build_optimizer(model, chosen.recipe.optimizer, CPU)
    precision = chosen_precision(training, model, CPU)
    shards = [np.memmap(path, np.uint8, "r") for path in sorted(store.folder.glob("*.safetensors"))]
    runs = iter(range(1000))

    def network() -> int:
        for step, batch in enumerate(made):
            with autocast(CPU, precision):
                losses = next(chosen.schedule.at(step).losses(model, batch))
            (sum(losses.values(), torch.zeros(())) / len(batch)).backward()
            optimizer.step()
            optimizer.zero_grad()
        return sum(map(len, made))

    def whole() -> int:
        few = TrainingConfig(steps=STEPS, batch=training.batch, precision=training.precision, checkpoint_every=1000)
        train(
            chosen.architecture.build(), chosen.schedule, loader, optimizer=chosen.recipe.optimizer, training=few,
            folder=root / f"run-{next(runs)}", console=Console(quiet=True),
        )  # fmt: skip
        return STEPS * training.batch

    return {
        "copy of the store's bytes (a limit)": lambda: sum(shard.copy().size > 0 for shard in shards) and SCENES,
        "the loader alone": lambda: sum(len(loader.at(step, 0, 1)) for step in range(STEPS)),
        "the network alone, on batches made before (a limit)": network,
        "training, the loader in a thread": whole,
    }


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = written(root / "store")
        recipe = pretraining_recipe(DemoConfig(), 0)
        measured = parts(learner_of(RunFolder.open(root / "plan", recipe), store, Nothing()), store, root)
        rates: dict[str, list[float]] = {name: [] for name in measured}
        for _ in range(ROUNDS):
            for name, part in measured.items():
                began = time.perf_counter()
                count = part()
                rates[name].append(count / (time.perf_counter() - began))
    figures = {
        "samples_per_second": {name: round(statistics.median(found)) for name, found in rates.items()},
        "rounds": {name: [round(rate) for rate in found] for name, found in rates.items()},
    }
    print(save_result("feeding", "uv run python -m benchmarks.feeding", figures))
    print(json.dumps(figures["samples_per_second"], indent=2))


if __name__ == "__main__":
    main()
