"""The five roles. Data flows one way: records -> samples -> batches -> states -> losses or predictions."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from diptych.core.batch import Batch, Places
from diptych.core.record import Record
from diptych.core.sample import Partners, Sample
from diptych.core.states import StateRequest, States
from diptych.core.vocabulary import Vocabulary

Losses = dict[str, Tensor]  # objective -> the sum of its losses over what it predicts in this batch


# What a model can do, and an objective needs. A name that is not here is refused by the type checker.
Capability = Literal[
    "regions",  # reads regions, and hands back States.regions
    "text",  # reads text, and hands back States.text
    "alone",  # reads text without a picture
    "text after regions",  # a text of which each word sees its past alone (seq2seq)
    "grounded",  # words read as the regions they attend to (XGPT's IDA)
    "target",  # words that are written, in States.target
    "target after text",  # that see the text too, as IMLM and IDA ask
    "target without text",  # that do not see the text, as MSG asks
    "queries",  # a [MASK] in the target for each word to write
    "region queries",  # a place in the target for each region, told from the text
    "hidden embeddings",  # of hidden regions, kept in States.embedded
    "pixels",  # reads pixels, and keeps their features in States.embedded["features"]
    "unimodal",  # both modalities before they meet, in States.unimodal
    "two passes",  # has `read_regions`, for `ScheduledSampling`
    "decode",  # is a Writer
]


@runtime_checkable
class Model(Protocol):
    """Reads a batch, hands back states. It knows no objective; heads are made by name (`models/heads.py`)."""

    heads: nn.ModuleDict
    provides: frozenset[Capability]

    def __call__(self, batch: Batch) -> States: ...


@runtime_checkable
class Writer(Protocol):
    """What a model that provides "decode" offers besides: to write one word at a time for K beams a picture.

    `follow` lets beam k write `words[b, k]` after what beam `parents[b, k]` had written. The memory is the
    model's own affair. The text of the batch is not read.
    """

    @property
    def vocabulary(self) -> Vocabulary: ...

    def begin(self, batch: Batch, room: int) -> tuple[Tensor, Any]: ...  # (B, V) scores of the first word; memory

    def follow(self, memory: Any, words: Tensor, parents: Tensor) -> Tensor: ...  # (B, K), (B, K) -> (B, K, V)


@runtime_checkable
class Objective(Protocol):
    """What is hidden, and what it costs to guess wrong.

    The cost is a sum and a count. The count is read off the batch alone, before any forward pass, so that the trainer
    can divide by the count over all ranks and all accumulated parts without keeping a graph.
    """

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> frozenset[Capability]: ...  # of a model's `provides`

    @property
    def heads(self) -> frozenset[str]: ...  # names in `HEADS`

    @property
    def changes(self) -> str: ...  # by `prepare`: "pairs", "input" or "nothing"; pairs are swapped before input hides

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]: ...  # on the CPU, in the loader

    def count(self, batch: Batch) -> Tensor: ...  # (), how many objects are predicted

    def request(self, batch: Batch) -> StateRequest: ...  # which states `loss` reads

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor: ...  # (), the sum


@runtime_checkable
class PairObjective(Objective, Protocol):
    """An objective that makes wrong pairs. It is handed one sample at a time, as all are, and the batch beside it."""

    def pair(self, samples: list[Sample], rng: Random, partners: Partners) -> list[Sample]: ...


@runtime_checkable
class Update(Protocol):
    """Objectives that share forward passes. Each item that `losses` yields is one optimizer step."""

    @property
    def objectives(self) -> Sequence[Objective]: ...

    @property
    def needs(self) -> frozenset[Capability]: ...  # of a model's `provides`, beside what its objectives need

    @property
    def weights(self) -> Mapping[str, float]: ...  # objective -> weight in the sum; 1 where absent

    # Of one sample, with randomness of its own; it may become several. Without `partners` the samples are each other's.
    def prepare(self, samples: list[Sample], rng: Random, partners: Partners | None = None) -> list[Sample]: ...

    def counts(self, batch: Any) -> Losses: ...

    def losses(self, model: Any, batch: Any) -> Iterator[Losses]: ...


@runtime_checkable
class PickingUpdate(Update, Protocol):
    """An update that says, on the CPU, where its objectives will pick (`Batch.places`)."""

    def places(self, batch: Batch) -> dict[str, Places]: ...


@runtime_checkable
class Task(Protocol):
    """Something a user wants of a picture: how to train for it, ask it, and score it."""

    @property
    def name(self) -> str: ...

    def samples(self, record: Record) -> list[Sample]: ...  # to train on

    def queries(self, record: Record) -> list[Sample]: ...  # to answer; also asked of records without regions

    def predict(self, model: Any, batch: Batch) -> list[dict[str, Any]]: ...  # one prediction a sample

    def score(self, predictions: Sequence[dict[str, Any]], records: Sequence[Record]) -> dict[str, float]: ...
