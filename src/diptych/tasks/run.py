"""Ask a model the questions of a task, batch by batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from diptych.core import Batch, Record, Sample, Task, collate
from diptych.runtime.devices import predicting
from diptych.runtime.errors import DataError


@runtime_checkable
class RanksGallery(Protocol):
    """A task whose queries are asked of all pictures at once, each pair a pass of the model."""

    def rank(self, model: nn.Module, records: Sequence[Record]) -> list[dict[str, Any]]: ...


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


def finite(scores: Tensor, batch: Batch) -> None:
    """NaN in a picture's features comes out as NaN, and would choose without a word."""
    bad = ~scores.isfinite().flatten(1).all(1) if scores.dim() > 1 else ~scores.isfinite()
    if bad.any():
        raise DataError(
            "the model's scores are not finite, so the features of the picture are not; `diptych check` finds such "
            "records: extract them again",
            key=batch.pictures[int(bad.nonzero()[0, 0])],
        )
