"""Validation scores of a run, and the calibration of its answers, measured on the validation records."""

from collections.abc import Callable
from functools import partial

from rich.console import Console
from torch import nn

from diptych.models import SystemModel
from diptych.runs.learner import Learner
from diptych.runs.predict import left_out
from diptych.tasks.calibration import Calibration
from diptych.tasks.run import predict_records
from diptych.tasks.spec import LIKELIHOOD

LIKELIHOOD_BATCHES = 20
Validate = Callable[[nn.Module, int], dict[str, float]]


def validation(learner: Learner, console: Console) -> Validate | None:
    """Return a function that scores a model on the validation records.

    None if there are no records or validation is off.
    """
    task, training = learner.task, learner.spec.training
    if learner.recipe.training.validate_every is None or not learner.held_out:
        return None
    if learner.spec.pretrains:
        batches = learner.held_out_batches()

        def validate(module: nn.Module, _: int) -> dict[str, float]:
            before = len(batches.corrupt)
            first = (batches.at(step, 0, 1) for step in range(min(batches.steps_per_epoch, LIKELIHOOD_BATCHES)))
            likelihood = learner.schedule.first.likelihood(module, first)
            if len(batches.corrupt) > before:
                console.print(left_out(batches.corrupt, "validation"), markup=False)
            return {LIKELIHOOD: likelihood}

        return validate
    records, damaged = learner.held_out_records
    if damaged:
        console.print(left_out(damaged, "validation"), markup=False)
    if training.validation is not None:
        task, records = training.validation(task, records)
    with_pixels = learner.with_pixels
    return lambda module, _: task.score(predict_records(task, module, records, with_pixels=with_pixels), records)


def calibration(learner: Learner, model: SystemModel) -> Calibration | None:
    """Fit the temperature of the answers on the validation records. None if the task has no answers."""
    calibrate = learner.spec.training.calibrate
    if calibrate is None or learner.answers is None or not learner.held_out:
        return None
    records, _ = learner.held_out_records
    predict = partial(predict_records, model=model, records=records, with_pixels=learner.with_pixels)
    return calibrate(learner.task, predict, records)
