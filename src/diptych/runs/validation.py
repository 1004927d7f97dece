"""Measurements on the held-out records of a run: validation scores, and the calibration of answers."""

from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from torch import nn

from diptych.core import Record, Task
from diptych.data.store.loader import Loader
from diptych.models import SystemModel
from diptych.objectives import Schedule
from diptych.runs.learner import Learner
from diptych.runs.predict import left_out
from diptych.tasks.calibration import Calibration
from diptych.tasks.run import predict_records
from diptych.tasks.spec import LIKELIHOOD

LIKELIHOOD_BATCHES = 20
Validate = Callable[[nn.Module, int], dict[str, float]]


def validation(learner: Learner, console: Console) -> Validate | None:
    """Return what measures a model on the held-out records; None if there are none, or it is switched off."""
    task, training = learner.task, learner.spec.training
    if learner.recipe.training.validate_every is None or not learner.held_out:
        return None
    if learner.spec.pretrains:
        batches = learner.held_out_batches()

        def validate(module: nn.Module, _: int) -> dict[str, float]:
            before = len(batches.corrupt)
            likelihood = _likelihood(module, batches, learner.schedule.first)
            if len(batches.corrupt) > before:
                console.print(left_out(batches.corrupt, "validation"), markup=False)
            return {LIKELIHOOD: likelihood}

        return validate
    records, damaged = learner.held_out_records
    if damaged:
        console.print(left_out(damaged, "validation"), markup=False)
    if training.validation is not None:
        task, records = training.validation(task, records)
    predict = _predict_held_out(learner, records)
    return lambda module, _: task.score(predict(task, module), records)


@torch.no_grad()
def _likelihood(module: nn.Module, batches: Loader, schedule: Schedule) -> float:
    """Return the mean log-likelihood of the watched objective's targets over the same held-out batches each time."""
    was_training, device = module.training, next(module.parameters()).device
    module.eval()
    total = count = 0.0
    for step in range(min(batches.steps_per_epoch, LIKELIHOOD_BATCHES)):
        batch, update, name = batches.at(step, 0, 1).to(device), schedule.at(step), schedule.watched
        total += float(next(update.losses(module, batch))[name])
        count += float(update.counts(batch)[name])
    module.train(was_training)
    return -total / max(count, 1)


def calibration(learner: Learner, model: SystemModel) -> Calibration | None:
    """Fit the temperature of answers on the held-out records, where the task has one."""
    calibrate = learner.spec.training.calibrate
    if calibrate is None or learner.answers is None or not learner.held_out:
        return None
    records, _ = learner.held_out_records
    predict = _predict_held_out(learner, records)
    return calibrate(learner.task, lambda task: predict(task, model), records)


def _predict_held_out(learner: Learner, records: list[Record]) -> Callable[[Task, nn.Module], list[dict[str, Any]]]:
    """Return what predicts for the records by a task and a model."""
    with_pixels = learner.with_pixels
    return lambda task, model: predict_records(task, model, records, with_pixels=with_pixels)
