"""What every system has in common: a config that a recipe chooses, one that the data complete, a model.

`System` (`diptych.systems`) is all of them under one name, with what begins or imports its weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator, model_validator
from torch import nn

from diptych.core import Batch, Capability, States, Vocabulary
from diptych.core.shares import Count, Epsilon, PartialShare, Size
from diptych.models.weights import ImportReport
from diptych.runtime.devices import Precision
from diptych.runtime.weight_files import Tensors

C = TypeVar("C", bound="ModelConfig")


class ModelConfig(BaseModel):
    """Sizes and switches that a recipe chooses."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    width: Size = 768
    """Width of the hidden states."""
    heads: Size = 12
    """Attention heads."""
    ffn: Size = 3072
    """Width of the feed-forward layers."""
    positions: Size = 512
    """Positions of the sequence."""
    max_regions: Size = 100
    """Regions of a picture at most."""
    dropout: PartialShare = 0.1
    """Dropout of the hidden states."""
    attention_dropout: PartialShare = 0.1
    """Dropout of the attention's weights."""
    norm_eps: Epsilon = 1e-12
    """Epsilon of the layer norms; BERT's."""
    init_std: Epsilon = 0.02
    """Standard deviation of random initial weights."""
    answer_slot: bool = False
    """Whether a question ends with a [MASK], at which its answer is read."""

    # Whether a picture in which no region was found shows it nothing: there is no mark, and no feature of the whole.
    needs_regions: ClassVar[bool] = False
    # Whether weights depend on `max_regions`: a model that has learnt with one number cannot go on with another.
    regions_fixed: ClassVar[bool] = False
    # Switches whose other side is another model: one that has learnt with either cannot go on by a recipe that names
    # the other.
    structural: ClassVar[frozenset[str]] = frozenset()
    # Settings that count rows of embeddings, such as segments. A fine-tuning recipe may ask for more than its model
    # has; the new rows begin as in a new model.
    grows: ClassVar[frozenset[str]] = frozenset()
    # Settings beside `max_regions` on which no weight depends: of a model that goes on, those of the recipe hold.
    of_the_run: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def base(cls: type[C], **changes: Any) -> C:
        """The paper's base size, with these changes."""
        return cls(**changes)

    @property
    def reads_pixels(self) -> bool:
        """Whether a network that reads pixels is a part of the model; else it reads the features of a store."""
        return False

    @property
    def reads_classes(self) -> bool:
        """Whether the detector's class probabilities are a part of the input."""
        return False

    @property
    def frozen_stages(self) -> int:
        """How many stages of that network keep the weights that they begin with."""
        return 0

    @model_validator(mode="after")
    def _divides(self) -> ModelConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} does not divide into {self.heads} heads")
        return self

    @property
    def max_text(self) -> int:
        """How many words (and the [SEP]s among them) there are positions for."""
        raise NotImplementedError

    @property
    def max_beside(self) -> int:
        """How many of them are read beside regions."""
        return self.max_text

    def most_regions(self, words: int) -> int:
        """How many regions are read beside so many words (and [SEP]s)."""
        return self.max_regions

    def fitted(self, whole: bool) -> ModelConfig:
        """The shape for features with or without one of the whole picture."""
        return self


class ResolvedConfig(ModelConfig):
    """A shape with what the data decide."""

    vocabulary: Vocabulary
    feature_size: Count = 2048  # F
    classes: Count = 1601  # C
    answers: Count = 0  # A, of the head "answer"
    whole_size: Count = 0  # of the feature of the whole picture; 0: that of a region

    @field_validator("vocabulary")
    @classmethod
    def _without_pieces(cls, vocabulary: Vocabulary) -> Vocabulary:
        """Which pieces continue a word is told by the tokeniser's file; config.json need not list them."""
        return replace(vocabulary, inner=frozenset())


class SystemModel(nn.Module):
    """A Model (`core/protocols.py`) that is built of a config and the names of its heads."""

    config: ResolvedConfig
    heads: nn.ModuleDict
    provides: frozenset[Capability]
    precision: Precision = "fp32"  # in which it predicts (`diptych.runtime.devices.predicting`); training has its own
    fewest: int = 1  # samples of a batch that is computed so; smaller ones are in fp32
    decodes: bool = False  # the target block holds the words that a decoder reads; else queries at their places

    def __init__(self, config: Any, heads: Iterable[str] = ()) -> None:
        super().__init__()
        self.config = config

    answers_exported: ClassVar[bool] = False  # whether `diptych export` makes programs of a model that answers

    @property
    def vocabulary(self) -> Vocabulary:
        return self.config.vocabulary

    @classmethod
    def provided(cls, _shape: Any) -> frozenset[Capability]:
        """What a model of this shape provides."""
        return cls.provides

    def forward(self, batch: Batch) -> States:
        raise NotImplementedError

    def __call__(self, *args: Any, **named: Any) -> States:
        states: States = super().__call__(*args, **named)
        return states


NETWORK = "regions.network."  # what the names of the parameters begin with that read pixels

# An official checkpoint as it is here: the config, the names of its heads, the tensors, what became of every key.
Imported = tuple[ResolvedConfig, tuple[str, ...], Tensors, ImportReport]


def as_bert(module: nn.Module, std: float) -> None:
    """BERT's fresh weights: normal with this deviation, biases zero; norms and activations stay as torch makes them."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
