"""Ask a model the questions of a task, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from torch import nn

from diptych.core import Record, Sample, Task, collate
from diptych.runtime.devices import predicting
from diptych.tasks.spec import RanksGallery


def ask(
    task: Task,
    model: nn.Module,
    records: Iterable[Record],
    batch_size: int = 64,
    with_pixels: Callable[[Record], Record] | None = None,
) -> list[dict[str, Any]]:
    """One prediction for each question of each record, in order. `records` have regions; `with_pixels` adds pixels.

    Of retrieval the questions are all pairs of the records, and a prediction says what a query found.
    """
    if isinstance(task, RanksGallery):
        return task.rank(model, list(records) if with_pixels is None else [with_pixels(record) for record in records])
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    predictions: list[dict[str, Any]] = []
    try:
        for samples in _batches(task, map(with_pixels, records) if with_pixels is not None else records, batch_size):
            with predicting(model, len(samples)):
                predictions += task.predict(model, collate(samples).to(device))
    finally:
        model.train(was_training)
    return predictions


def _batches(task: Task, records: Iterable[Record], size: int) -> Iterator[list[Sample]]:
    samples = (sample for record in records for sample in task.queries(record))
    while batch := list(islice(samples, size)):
        yield batch
