"""Base classes of a system's config and model: the config in a recipe, the config with the data's sizes, and the model.

A `System` (`diptych.systems`) combines these three with initialisation and import of weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, field_validator, model_validator
from torch import nn

from diptych.core import Batch, Capability, States, Vocabulary
from diptych.core.contract import PARTS, Part
from diptych.core.shares import Count, Epsilon, PartialShare, Size
from diptych.models.weights import ImportReport
from diptych.runtime.devices import Precision
from diptych.runtime.errors import DataError, RecipeError
from diptych.runtime.weight_files import Tensors

C = TypeVar("C", bound="ModelConfig")


class ModelConfig(BaseModel):
    """Sizes and options of a model, which a recipe sets."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    width: Size = 768
    """Width of the hidden states."""
    heads: Size = 12
    """Number of attention heads."""
    ffn: Size = 3072
    """Width of the feed-forward layers."""
    positions: Size = 512
    """Number of positions of the sequence."""
    max_regions: Size = 100
    """Maximum number of regions of an image."""
    dropout: PartialShare = 0.1
    """Dropout of the hidden states."""
    attention_dropout: PartialShare = 0.1
    """Dropout of the attention's weights."""
    norm_eps: Epsilon = 1e-12
    """Epsilon of the layer norms, as in BERT."""
    init_std: Epsilon = 0.02
    """Standard deviation of random initial weights."""
    answer_slot: bool = False
    """Whether a question ends with a [MASK], at which its answer is read."""

    # True if the model cannot process an image without regions.
    needs_regions: ClassVar[bool] = False
    # True if weights depend on `max_regions`, so that a trained model cannot use another value.
    regions_fixed: ClassVar[bool] = False
    # Settings that define the architecture. A trained model cannot use other values.
    structural: ClassVar[frozenset[str]] = frozenset()
    # Settings that are numbers of embedding rows, such as `segments`. A fine-tuning recipe may increase them. The
    # additional rows are initialised as in a new model.
    grows: ClassVar[frozenset[str]] = frozenset()
    # Settings like `max_regions` on which no weight depends. In fine-tuning, the recipe's values apply.
    of_the_run: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def base(cls: type[C], **changes: Any) -> C:
        """Return the config of the paper's base size, with `changes`."""
        return cls(**changes)

    @property
    def reads_pixels(self) -> bool:
        """True if the model has a network that reads pixels. False: it reads stored features."""
        return False

    @property
    def reads_classes(self) -> bool:
        """True if the model reads the detector's class probabilities."""
        return False

    @property
    def reads(self) -> frozenset[Part]:
        """The parts of stored regions that the model reads."""
        unread = ({"features"} if self.reads_pixels else set()) | (set() if self.reads_classes else {"classes"})
        return frozenset(PARTS) - unread

    @property
    def begins_from_detector(self) -> bool:
        """True if the model has layers that can be initialised from a detector's (`network_init`)."""
        return self.reads_pixels

    @property
    def frozen_stages(self) -> int:
        """Number of stages that are not trained, in the network that reads pixels."""
        return 0

    @model_validator(mode="after")
    def _divides(self) -> ModelConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by {self.heads} heads; change one of them")
        return self

    @property
    def max_text(self) -> int:
        """Maximum number of text tokens that the model can read, including [SEP]s."""
        raise NotImplementedError

    @property
    def max_beside(self) -> int:
        """Maximum number of text tokens that the model can read together with regions."""
        return self.max_text

    def check_text(self, key: str, words: int, special: int, alone: bool = False) -> None:
        """Raise RecipeError if there are too few positions for texts of `words` tokens and `special` special tokens.

        `alone`: True if the texts are read without regions. `key`: the setting that `words` comes from, for the error.
        """
        room = self.max_text if alone else self.max_beside
        if room < words + special:
            budget = "" if room == self.max_text else " or set model.region_budget=paper"
            raise RecipeError(
                f"the model has {room} positions for words, but {key}={words} needs {words + special}; "
                f"raise model.positions{budget} or lower {key}"
            )

    def most_regions(self, words: int) -> int:
        """Return the maximum number of regions that the model can read together with `words` text tokens."""
        return self.max_regions

    def fitted(self, whole: bool) -> ModelConfig:
        """Return the config adapted to a store. `whole`: True if the store has features of whole images."""
        return self


class ResolvedConfig(ModelConfig):
    """A config completed with sizes that the data determine."""

    vocabulary: Vocabulary
    feature_size: Count = 2048  # size of a region feature (F)
    classes: Count = 1601  # number of region classes (C)
    answers: Count = 0  # number of answers (A) of the head "answer"
    whole_size: Count = 0  # size of the whole image's feature; 0: feature_size

    @field_validator("vocabulary")
    @classmethod
    def _without_pieces(cls, vocabulary: Vocabulary) -> Vocabulary:
        """Remove the list of word pieces, which config.json does not need: tokenizer.json has it."""
        return replace(vocabulary, inner=frozenset())


class SystemModel(nn.Module):
    """Base class of a system's model, built from a config and names of heads; see `core.protocols.StateModel`."""

    config: ResolvedConfig
    heads: nn.ModuleDict
    provides: frozenset[Capability] = frozenset()
    precision: Precision = "fp32"  # precision of predictions; training has its own setting
    fewest: int = 1  # a batch with fewer samples than this is computed in fp32
    decodes: bool = False  # True: the target holds words that a decoder reads; False: [MASK] queries

    def __init__(self, config: Any, heads: Iterable[str] = ()) -> None:
        super().__init__()
        self.config = config

    answers_exported: ClassVar[bool] = False  # True: `diptych export` supports VQA models of this system

    @property
    def vocabulary(self) -> Vocabulary:
        return self.config.vocabulary

    @classmethod
    def provided(cls, _shape: Any) -> frozenset[Capability]:
        """Return the capabilities of a model with this config."""
        return cls.provides

    def refuse_more_regions(self, batch: Batch) -> None:
        """Raise DataError if an image of the batch has more regions than the model can read."""
        if batch.boxes.shape[1] > (most := self.config.max_regions):
            raise DataError(
                f"an image has {batch.boxes.shape[1]} regions, but the model reads at most {most}; extract fewer "
                "regions, or raise model.max_regions",
                key=batch.keys[int(batch.regions_present.sum(1).argmax())],
            )

    def forward(self, batch: Batch) -> States:
        raise NotImplementedError

    def __call__(self, *args: Any, **named: Any) -> States:
        return cast(States, super().__call__(*args, **named))


NETWORK = "regions.network."  # name prefix of the weights of the network that reads pixels

# Result of an import: (config, names of heads, tensors, report).
Imported = tuple[ResolvedConfig, tuple[str, ...], Tensors, ImportReport]


def as_bert(module: nn.Module, std: float) -> None:
    """Initialise a module as in BERT: normal weights with standard deviation `std`, zero biases.

    Layer norms are not changed.
    """
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
