"""The loop in one process."""

import json
from pathlib import Path

import pytest
from rich.console import Console
from toy import ToyBatches, ToyModel, ToySchedule, score, weight_hash

from diptych.training import OptimizerConfig, TrainingConfig, train

QUIET = Console(quiet=True)


def run(folder: Path, *, model: ToyModel | None = None, optimizer=None, passes=1, schedule=None, **training):
    """Trains a toy in `folder`; returns (model, result)."""
    model = model if model is not None else ToyModel(dropout=0.1)
    config = TrainingConfig(
        **{"steps": 6, "batch": 4, "log_every": 1, "checkpoint_every": 2, "device": "cpu"} | training
    )
    validated = config.validate_every is not None
    result = train(
        model,
        schedule if schedule is not None else ToySchedule(passes),
        ToyBatches(config.batch),
        optimizer=optimizer or OptimizerConfig(lr=0.05),
        training=config,
        folder=folder,
        validate=score if validated else None,
        score="goodness" if validated else None,
        console=QUIET,
    )
    return model, result


def lines(folder: Path) -> list[dict]:
    return [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]


def test_learns(tmp_path):
    run(tmp_path, steps=60, optimizer=OptimizerConfig(lr=0.05, clip=1.0))
    losses = [line["losses"]["word"] for line in lines(tmp_path)]
    assert losses[-1] < losses[0] / 2
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 61))


class _Cut(Exception):
    pass


class CutBatches(ToyBatches):
    """Fails when asked for a step: a run that dies there."""

    last = 0

    def at(self, step, part, parts):
        if step >= self.last:
            raise _Cut
        return super().at(step, part, parts)


@pytest.mark.parametrize("kind", ["adamw", "adam", "sgd", "bert_adam"])
def test_resume_is_bitwise(tmp_path, kind):
    """Stopped after every n: weights and log equal an undisturbed run's, with dropout, EMA and validation."""
    options = {"ema": 0.9, "validate_every": 3, "average_best": 2, "micro_batch": 2, "checkpoint_every": 1}
    optimizer = OptimizerConfig(kind=kind, lr=0.01, weight_decay=0.01, warmup_steps=2, clip=1.0)
    whole, result = run(tmp_path / "whole", optimizer=optimizer, **options)
    for n in range(1, 6):
        cut = tmp_path / f"cut{n}"
        batches = CutBatches(4)
        object.__setattr__(batches, "last", n)
        with pytest.raises(_Cut):
            train_cut(cut, batches, optimizer, options)
        resumed, again = run(cut, optimizer=optimizer, **options)
        assert weight_hash(resumed) == weight_hash(whole)
        assert again == result
        assert [without_speed(x) for x in lines(cut)] == [without_speed(x) for x in lines(tmp_path / "whole")]


def without_speed(line: dict) -> dict:
    return {name: value for name, value in line.items() if name != "samples_per_second"}


def train_cut(folder, batches, optimizer, options):
    config = TrainingConfig(**{"steps": 6, "batch": 4, "log_every": 1, "device": "cpu"} | options)
    extra = {"validate": score, "score": "goodness"}
    train(
        ToyModel(dropout=0.1),
        ToySchedule(),
        batches,
        optimizer=optimizer,
        training=config,
        folder=folder,
        console=QUIET,
        **extra,
    )
