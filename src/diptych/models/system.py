"""Base classes of every system: the config that a recipe has, its completion by the data, and the model.

`System` (`diptych.systems`) combines the three with the initialisation and import of weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, field_validator, model_validator
from torch import nn

from diptych.core import Batch, Capability, States, Vocabulary
from diptych.core.shares import Count, Epsilon, PartialShare, Size
from diptych.models.weights import ImportReport
from diptych.runtime.devices import Precision
from diptych.runtime.errors import RecipeError
from diptych.runtime.weight_files import Tensors

C = TypeVar("C", bound="ModelConfig")


class ModelConfig(BaseModel):
    """Sizes and switches of a model that a recipe chooses."""

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

    # True if the model cannot process an image without regions.
    needs_regions: ClassVar[bool] = False
    # True if weights depend on `max_regions`: a trained model cannot continue with another number.
    regions_fixed: ClassVar[bool] = False
    # Settings that change the architecture; a trained model cannot continue with another value.
    structural: ClassVar[frozenset[str]] = frozenset()
    # Settings that count rows of embeddings, such as segments. A fine-tuning recipe may raise them; the new rows are
    # initialised as in a new model.
    grows: ClassVar[frozenset[str]] = frozenset()
    # Settings no weight depends on, in addition to `max_regions`; when a model is resumed the recipe's values apply.
    of_the_run: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def base(cls: type[C], **changes: Any) -> C:
        """The paper's base size, with these changes."""
        return cls(**changes)

    @property
    def reads_pixels(self) -> bool:
        """True if the model has a network that reads pixels; else it reads the features of a store."""
        return False

    @property
    def reads_classes(self) -> bool:
        """True if the detector's class probabilities are part of the input."""
        return False

    @property
    def frozen_stages(self) -> int:
        """Number of frozen stages of the network that reads pixels."""
        return 0

    @model_validator(mode="after")
    def _divides(self) -> ModelConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by {self.heads} heads")
        return self

    @property
    def max_text(self) -> int:
        """Most text tokens, [SEP]s included, that the model can read."""
        raise NotImplementedError

    @property
    def max_beside(self) -> int:
        """Most text tokens that the model can read together with regions."""
        return self.max_text

    def check_text(self, key: str, words: int, special: int, alone: bool = False) -> None:
        """Raise RecipeError if there are too few positions for texts of `words` tokens, with regions or alone.

        `key`: setting of the number of words.
        """
        room = self.max_text if alone else self.max_beside
        if room < words + special:
            budget = "" if room == self.max_text else " or set model.region_budget=paper"
            raise RecipeError(
                f"the model's shape leaves {room} positions for words, and {key}={words} needs {words + special}; "
                f"raise model.positions{budget} or lower {key}"
            )

    def most_regions(self, words: int) -> int:
        """Most regions that the model can read together with `words` text tokens, [SEP]s included."""
        return self.max_regions

    def fitted(self, whole: bool) -> ModelConfig:
        """Return the config for a store with or without features of whole images (`whole`)."""
        return self


class ResolvedConfig(ModelConfig):
    """A config completed by the data."""

    vocabulary: Vocabulary
    feature_size: Count = 2048  # F
    classes: Count = 1601  # C
    answers: Count = 0  # A, of the head "answer"
    whole_size: Count = 0  # size of the feature of the whole image; 0: as a region's

    @field_validator("vocabulary")
    @classmethod
    def _without_pieces(cls, vocabulary: Vocabulary) -> Vocabulary:
        """Drop the pieces that continue words from config.json: the tokeniser's file has them."""
        return replace(vocabulary, inner=frozenset())


class SystemModel(nn.Module):
    """Base class of a system's model (`StateModel` in `core/protocols.py`), built from a config and names of heads."""

    config: ResolvedConfig
    heads: nn.ModuleDict
    provides: frozenset[Capability] = frozenset()
    precision: Precision = "fp32"  # precision of predictions (`diptych.runtime.devices.predicting`), not of training
    fewest: int = 1  # samples of a batch that is computed in `precision`; smaller ones are in fp32
    decodes: bool = False  # the target block holds words that a decoder reads; else queries at the words' positions

    def __init__(self, config: Any, heads: Iterable[str] = ()) -> None:
        super().__init__()
        self.config = config

    answers_exported: ClassVar[bool] = False  # whether `diptych export` supports models that answer questions

    @property
    def vocabulary(self) -> Vocabulary:
        return self.config.vocabulary

    @classmethod
    def provided(cls, _shape: Any) -> frozenset[Capability]:
        """The capabilities of a model of this config."""
        return cls.provides

    def forward(self, batch: Batch) -> States:
        raise NotImplementedError

    def __call__(self, *args: Any, **named: Any) -> States:
        return cast(States, super().__call__(*args, **named))


NETWORK = "regions.network."  # prefix of the parameters of the network that reads pixels

# An official checkpoint as imported: the config, the names of its heads, the tensors, the report on every key.
Imported = tuple[ResolvedConfig, tuple[str, ...], Tensors, ImportReport]


def as_bert(module: nn.Module, std: float) -> None:
    """Initialise as BERT: weights normal with deviation `std`, biases zero; norms keep torch's initial values."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
