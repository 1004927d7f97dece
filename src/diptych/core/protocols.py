"""The protocols of models, writers, objectives, updates and tasks.

Data flows one way: records -> samples -> batches -> states -> losses or predictions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from diptych.core.batch import Batch, Places
from diptych.core.record import Record
from diptych.core.sample import Partners, Sample
from diptych.core.states import StateRequest, States
from diptych.core.vocabulary import Vocabulary

Losses = dict[str, Tensor]  # objective -> the sum of its losses over its targets in a batch


# What a model can do and an objective may need. The type checker refuses other names.
Capability = Literal[
    "regions",  # reads regions and returns States.regions
    "text",  # reads text and returns States.text
    "alone",  # reads text without an image
    "text after regions",  # text in which a word attends only to the words before it (seq2seq)
    "grounded",  # words read as the regions they attend to (XGPT's IDA)
    "target",  # a decoder's words, in States.target
    "target after text",  # a decoder that attends to the text too (XGPT's IMLM and IDA)
    "target without text",  # a decoder that does not attend to the text (TDEN's MSG)
    "queries",  # a [MASK] in the target for each word to write
    "region queries",  # a position in the target for each region, generated from the text (XGPT's TIFG)
    "hidden embeddings",  # keeps the embeddings of hidden regions in States.embedded
    "pixels",  # reads pixels and keeps their features in States.embedded["features"]
    "unimodal",  # both modalities before cross-modal attention, in States.unimodal
    "two passes",  # has `read_regions`, for `ScheduledSampling`
    "decode",  # is a Writer
]


class Method(str):
    """A method of the model that an objective needs: `Method("fuse")` means that `loss` calls `model.fuse(...)`."""


Needs = frozenset[Capability | Method]


@runtime_checkable
class StateModel(Protocol):
    """A model: a batch in, states out. It knows no objective; its heads are made by name (`models/heads.py`)."""

    heads: nn.ModuleDict
    provides: frozenset[Capability]

    def __call__(self, batch: Batch) -> States: ...


@runtime_checkable
class Writer(Protocol):
    """A model that provides "decode": it writes one word at a time for K beams per image.

    In `follow`, beam k continues beam `parents[b, k]` with the word `words[b, k]`. The memory is opaque to callers. The
    text of the batch is not read.
    """

    @property
    def vocabulary(self) -> Vocabulary: ...

    def begin(self, batch: Batch, room: int) -> tuple[Tensor, Any]: ...  # scores of the first word (B, V); memory

    def follow(self, memory: Any, words: Tensor, parents: Tensor) -> Tensor: ...  # (B, K), (B, K) -> (B, K, V)


@runtime_checkable
class Objective(Protocol):
    """A training objective: how samples are masked, and the loss of the predictions.

    The loss is a sum; the number of its targets is counted apart. The count comes from the batch alone, before any
    forward pass. The trainer can then divide by the count over all ranks and micro-batches without keeping a graph.

    As a base class it has defaults for all but `heads` and `loss`:

    - name: the class's name in lower case, with underscores.
    - needs: what the model must be able to do; nothing.
    - changes: what `prepare` changes, "pairs", "input" or "nothing"; nothing. Pairs are swapped before input is masked.
    - prepare: on the CPU, in the loader; the samples as they are.
    - count: the number of targets, a tensor of shape (); one for each sample.
    - request: the states that `loss` reads; those that the heads read.
    """

    @property
    def name(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def needs(self) -> Needs:
        return frozenset()

    @property
    def heads(self) -> frozenset[str]: ...  # keys of `HEADS`

    @property
    def changes(self) -> str:
        return "nothing"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return samples

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch))

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(heads=self.heads)

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor: ...  # (), summed over the targets


@runtime_checkable
class PairObjective(Objective, Protocol):
    """An objective that makes mismatched pairs. It receives one sample at a time, and the batch to draw others from."""

    def pair(self, samples: list[Sample], rng: Random, partners: Partners) -> list[Sample]: ...


@runtime_checkable
class ComparesSamples(Protocol):
    """An objective that compares samples: with `compares = "batch"`, each with the others of its batch.

    A run in micro-batches warns that fewer samples are compared.
    """

    @property
    def compares(self) -> str: ...  # "batch" or "nothing"


@runtime_checkable
class Update(Protocol):
    """Objectives that share forward passes. Each item that `losses` yields becomes one optimizer step."""

    @property
    def objectives(self) -> Sequence[Objective]: ...

    @property
    def needs(self) -> Needs: ...  # in addition to those of its objectives

    @property
    def weights(self) -> Mapping[str, float]: ...  # objective -> weight in the sum; 1 if absent

    # Takes one sample and its own random generator; returns one or more. Without `partners`, mismatched pairs are made
    # among `samples`.
    def prepare(self, samples: list[Sample], rng: Random, partners: Partners | None = None) -> list[Sample]: ...

    def counts(self, batch: Any) -> Losses: ...

    def losses(self, model: Any, batch: Any) -> Iterator[Losses]: ...


@runtime_checkable
class PickingUpdate(Update, Protocol):
    """An update that finds the places its objectives read (`Batch.places`) on the CPU, in the loader."""

    def places(self, batch: Batch) -> dict[str, Places]: ...


@runtime_checkable
class Following(Protocol):
    """A model with weights that follow others, such as a momentum encoder's."""

    def after_step(self) -> None: ...  # called on every rank after each step of the optimizer


@runtime_checkable
class Task(Protocol):
    """A downstream task: its training samples, its queries, its predictions and their scores."""

    @property
    def name(self) -> str: ...

    def samples(self, record: Record) -> list[Sample]: ...  # for training

    def queries(self, record: Record) -> list[Sample]: ...  # for prediction; called for records without regions too

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]: ...  # one prediction per sample

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]: ...
