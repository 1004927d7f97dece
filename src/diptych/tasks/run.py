"""Predict with a model, batch by batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn

from diptych.core import Batch, Record, Sample, Task, collate
from diptych.core.record import TAG
from diptych.data.store.tokens import Tokens
from diptych.metrics.tokenise import WORD
from diptych.runtime.devices import predicting
from diptych.runtime.errors import DataError

NAMED_WORDS = 5  # at most this many unknown words are named in a warning


@runtime_checkable
class RanksGallery(Protocol):
    """A task whose model scores pairs of a query and an image to rank a gallery."""

    def rank(self, model: nn.Module, records: Sequence[Record]) -> list[dict[str, Any]]: ...


def predict_records(
    task: Task,
    model: nn.Module,
    records: Iterable[Record],
    batch_size: int = 64,
    with_pixels: Callable[[Record], Record] | None = None,
) -> list[dict[str, Any]]:
    """Return one prediction for each query of each record, in order.

    `records` must have regions; `with_pixels` adds pixels to a record. For retrieval by pairs, all pairs of the records
    are scored, and each prediction lists the results of one query.
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


def encode(tokens: Tokens, text: str, max_words: int) -> Int[Tensor, "T"]:
    """Return the token ids of a text, cut at `max_words` tokens, followed by [SEP]."""
    return torch.tensor([*tokens.encode(text)[:max_words], tokens.vocabulary.sep])


def unread(tokens: Tokens, texts: Iterable[str], max_words: int | None) -> str | None:
    """Return a warning about the parts of texts that a model does not read, or None if it reads all.

    It does not read words that it does not know, and the tokens of a text after the first `max_words` (None: it reads
    all tokens).
    """
    texts = list(texts)
    words = dict.fromkeys(word for text in texts for word in WORD.findall(TAG.sub(" ", text)))
    strange = [word for word in words if tokens.vocabulary.unknown in tokens.encode(word)]
    more = f" and {len(strange) - NAMED_WORDS} more" if len(strange) > NAMED_WORDS else ""
    notes = [f"the model does not know {', '.join(strange[:NAMED_WORDS])}{more}"] if strange else []
    cut = [text for text in texts if max_words is not None and len(tokens.encode(text)) > max_words]
    notes += [f"the model reads only the first {max_words} tokens of “{text[:60]}”" for text in cut[:1]]
    return "; ".join(notes) or None


def finite(scores: Tensor, batch: Batch) -> None:
    """Raise DataError if a sample's scores are not finite. The usual cause is a NaN in its features."""
    bad = ~scores.isfinite().flatten(1).all(1) if scores.dim() > 1 else ~scores.isfinite()
    if bad.any():
        raise DataError(
            "the model's scores are not finite, because the image's features are not; `diptych check` lists such "
            "images: extract them again",
            key=batch.pictures[int(bad.nonzero()[0, 0])],
        )
