"""A few steps of TDEN's pre-training, by one process or under torchrun: what `test_two_ranks.py` compares."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.console import Console

from diptych.core import Batch, collate
from diptych.objectives import Schedule
from diptych.systems.tden.objectives import TdenObjectives
from diptych.training import OptimizerConfig, TrainingConfig, train
from diptych.training.ranks import join_ranks, leave

BATCH, STEPS = 7, 3  # odd, so that two ranks have different numbers of samples


class Parts:
    """The same samples, prepared once a step, however many parts there are. Two show one picture."""

    def __init__(self, schedule: Schedule, hurt: bool) -> None:
        self.schedule, self.hurt = schedule, hurt  # whether what the second of two ranks would read cannot be read once

    def at(self, step: int, part: int, parts: int) -> Batch:
        samples = [toy.sample(step * BATCH + n) for n in range(BATCH)]
        prepared = self.schedule.at(step).prepare(samples, Random(step))
        hurt = self.hurt and step == 1
        if hurt:
            own = prepared[: 1 if part else None : 2]
            batch = replace(collate(own), idle=bool(part))
        else:
            batch = collate(prepared[part::parts])
        batch.pictures = ["one" if name in (f"picture/{step * BATCH + 1}", f"picture/{step * BATCH + 2}") else name
                          for name in batch.pictures]  # fmt: skip
        return batch


def run(folder: Path, form: str, two_pass: str | None, distributed: str, hurt: bool = False) -> None:
    """Guesses are the likeliest words: drawn ones depend on who draws."""
    objectives = TdenObjectives(matching=form, two_pass=two_pass, sampling="official" if two_pass else "paper")
    schedule = objectives.schedule(toy.VOCABULARY)  # a great eps below: Adam would make much of rounding
    train(
        toy.tden(std=0.1),
        schedule,
        Parts(schedule, hurt),
        optimizer=OptimizerConfig(lr=0.5, eps=1.0, schedule="constant"),
        training=TrainingConfig(steps=STEPS, batch=BATCH, device="cpu", log_every=1, distributed=distributed),
        folder=folder,
        console=Console(stderr=True, quiet=True),
    )


def main() -> int:
    torch.set_num_threads(1)
    with join_ranks(torch.device("cpu")):
        for text in sys.argv[1:]:
            options: dict[str, Any] = json.loads(text)
            run(Path(options.pop("folder")), **options)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, os.environ["TESTS_OF"])
from tests.support import toy  # noqa: E402

if __name__ == "__main__":
    leave(main())
