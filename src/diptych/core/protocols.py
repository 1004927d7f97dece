"""The protocols (interfaces) of models, objectives, updates and tasks.

Data flow: records -> samples -> batches -> states -> losses or predictions.
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

Losses = dict[str, Tensor]  # {name of an objective: its loss, summed over its targets in a batch}


# Capabilities that models may provide and objectives may need.
Capability = Literal[
    "regions",  # reads regions and returns States.regions
    "text",  # reads text and returns States.text
    "alone",  # reads text without an image
    "text after regions",  # can restrict a word's attention to the words before it (seq2seq)
    "grounded",  # can replace words by the regions that they attend to (XGPT's IDA)
    "target",  # has a decoder, and returns States.target
    "target after text",  # its decoder attends to the text too (XGPT's IMLM and IDA)
    "target without text",  # its decoder does not attend to the text (TDEN's MSG)
    "queries",  # reads [MASK] queries in the target, one for each word to predict
    "region queries",  # reads one target query per region to predict (XGPT's TIFG)
    "hidden embeddings",  # returns the embeddings of hidden regions in States.embedded
    "pixels",  # reads pixels and returns region features in States.embedded["features"]
    "unimodal",  # returns the states before cross-modal attention in States.unimodal
    "two passes",  # has the method `read_regions`, which `ScheduledSampling` calls
    "decode",  # implements `Writer`
]


class Method(str):
    """The name of a model's method that an objective needs. `Method("fuse")`: `loss` calls `model.fuse(...)`."""


Needs = frozenset[Capability | Method]


@runtime_checkable
class StateModel(Protocol):
    """A model that computes states from a batch.

    Objectives call its `heads` by name (`models/heads.py`).
    """

    heads: nn.ModuleDict
    provides: frozenset[Capability]

    def __call__(self, batch: Batch) -> States: ...


@runtime_checkable
class Writer(Protocol):
    """A model with the capability "decode": it generates text word by word, with K beams per image.

    `begin` ignores the text of the batch. `follow` appends the word `words[b, k]` to beam `parents[b, k]` of image b;
    the result is the new beam k. Callers do not look into the memory (such as a key-value cache).
    """

    @property
    def vocabulary(self) -> Vocabulary: ...

    # Returns (scores of the first word (B, V), memory).
    def begin(self, batch: Batch, room: int) -> tuple[Tensor, Any]: ...

    # `words` and `parents` have the shape (B, K). Returns scores (B, K, V).
    def follow(self, memory: Any, words: Tensor, parents: Tensor) -> Tensor: ...


@runtime_checkable
class Objective(Protocol):
    """A training objective. It masks samples and computes the loss of the model's predictions.

    `loss` returns a sum over targets, and `count` returns their number. `count` reads only the batch, so the number is
    known before the forward pass. The trainer divides the summed loss by the total count over all ranks and
    micro-batches.

    Subclasses must define `heads` and `loss`. The other members have defaults:

    - name: key in logs and settings. Default: the class's name in snake case.
    - needs: capabilities that the model must have. Default: none.
    - changes: what `prepare` changes: "pairs", "input" or "nothing" (default). Objectives that change pairs must come
      before objectives that mask the input.
    - prepare: masks samples, on the CPU in the loader. Default: no change.
    - count: the number of targets, a tensor of shape (). Default: one per sample.
    - request: the states that `loss` reads. Default: the states that `heads` read.
    """

    @property
    def name(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def needs(self) -> Needs:
        return frozenset()

    @property
    def heads(self) -> frozenset[str]: ...  # names of the model's heads that it reads: keys of `HEADS`

    @property
    def changes(self) -> str:
        return "nothing"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return samples

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch))

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(heads=self.heads)

    # Returns a scalar: the loss, summed over targets.
    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor: ...


@runtime_checkable
class PairObjective(Objective, Protocol):
    """An objective that makes mismatched pairs.

    `pair` gets the samples of one pair. `partners` is the batch from which other texts or images are taken.
    """

    def pair(self, samples: list[Sample], rng: Random, partners: Partners) -> list[Sample]: ...


@runtime_checkable
class ComparesSamples(Protocol):
    """An objective that may compare samples.

    If `compares` is "batch", each sample is compared with the other samples of its micro-batch. Training then warns if
    micro-batches are smaller than the batch.
    """

    @property
    def compares(self) -> str: ...  # "batch": the samples of a micro-batch are compared; "nothing": they are not


@runtime_checkable
class Update(Protocol):
    """A group of objectives that share forward passes.

    The trainer makes an optimizer step for each item that `losses` yields.
    """

    @property
    def objectives(self) -> Sequence[Objective]: ...

    @property
    def needs(self) -> Needs: ...  # what the update needs from a model, in addition to its objectives' needs

    @property
    def weights(self) -> Mapping[str, float]: ...  # {objective: weight of its loss}; default: 1

    # `samples` has one sample, and `rng` is its random generator. Returns one or more samples. If `partners` is None,
    # mismatched pairs are made from `samples`.
    def prepare(self, samples: list[Sample], rng: Random, partners: Partners | None = None) -> list[Sample]: ...

    def counts(self, batch: Any) -> Losses: ...

    def losses(self, model: Any, batch: Any) -> Iterator[Losses]: ...


@runtime_checkable
class PickingUpdate(Update, Protocol):
    """An update that computes `Batch.places`, the positions that its objectives read.

    It does so on the CPU, in the loader.
    """

    def places(self, batch: Batch) -> dict[str, Places]: ...


@runtime_checkable
class Following(Protocol):
    """A model with weights that are computed from other weights after each step, such as a momentum encoder."""

    def after_step(self) -> None: ...  # called on every rank after each optimizer step


@runtime_checkable
class Task(Protocol):
    """A downstream task. It makes training samples and queries, predicts, and scores predictions."""

    @property
    def name(self) -> str: ...

    def samples(self, record: Record) -> list[Sample]: ...  # the record's samples for training

    # The record's samples for prediction. The record may lack regions.
    def queries(self, record: Record) -> list[Sample]: ...

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]: ...  # returns one prediction per sample

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]: ...
