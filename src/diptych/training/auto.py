"""Resolve `micro_batch=auto` to a size that fits into a GPU's memory, and `precision=auto` to a precision."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf

import torch
from torch import nn

from diptych.runtime.configs import derive
from diptych.runtime.devices import Precision, choose_precision
from diptych.runtime.errors import TrainingError
from diptych.training.config import TrainingConfig
from diptych.training.step import Stepper

# Types of devices on which batch sizes are tried. On others, running out of memory may end the process.
TRIED = ("cuda",)
# A trial may use this share of the GPU's memory. It is below 1, because later batches may be longer.
SHARE = 0.85


def with_auto_micro_batch(stepper: Stepper) -> Stepper:
    """Return a stepper in which `micro_batch=auto` is replaced by a size that fits into memory.

    Raises TrainingError if even a single sample does not fit.
    """
    if stepper.training.micro_batch != "auto":
        return stepper
    if stepper.ranks.device.type not in TRIED:
        return _of_size(stepper, None)

    def fits(size: int) -> bool:
        # The size must fit on every rank.
        return stepper.ranks.sum([float(not _has_room(_of_size(stepper, size)))])[0] == 0

    return _of_size(stepper, largest(-(-stepper.training.batch // stepper.ranks.world), fits))


def largest(size: int, fits: Callable[[int], bool]) -> int:
    """Return the first of size, size / 2, size / 4, ... for which `fits` is true.

    Raises TrainingError if `fits` is false for all sizes.
    """
    while not fits(size):
        if size == 1:
            raise TrainingError(
                "a single sample does not fit into the GPU's memory: lower model.max_regions or other model sizes"
            )
        size = -(-size // 2)
    return size


def _of_size(stepper: Stepper, size: int | None) -> Stepper:
    return replace(stepper, training=derive(stepper.training, micro_batch=size))


def _has_room(stepper: Stepper) -> bool:
    try:
        with _limited(stepper.ranks.device):
            stepper.trial()
    except torch.OutOfMemoryError:
        return False
    return True


@contextmanager
def _limited(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_per_process_memory_fraction(SHARE, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()


def chosen_precision(training: TrainingConfig, module: nn.Module, device: torch.device) -> Precision:
    """Return the precision of a run.

    With `auto`, a module without a width, such as a detector, uses bf16 if the device supports it.
    """
    width = getattr(getattr(module, "config", None), "width", inf)
    return choose_precision(training.precision, device, training.batch * width**2)
