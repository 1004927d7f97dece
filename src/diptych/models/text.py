"""Parts that the models of several systems share for texts: room for words, refusals, a decoder that writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from diptych.models.decoder import write_word
from diptych.models.system import ModelConfig, SystemModel
from diptych.models.transformer import DecoderCache, LayerCache
from diptych.runtime.errors import DataError, RecipeError

# A size that trains in minutes on one core. BERT's init_std of 0.02 belongs to its width: a layer's output then has
# about half the size of what it is added to. At width 128 that takes 0.05; with 0.02 learning takes twice the steps.
TINY: dict[str, Any] = {"width": 128, "heads": 4, "ffn": 512, "max_regions": 32, "init_std": 0.05}


class TextConfig(ModelConfig):
    """A config whose positions are those of the words and of `reserved` other tokens."""

    reserved: ClassVar[int]  # positions that no word takes
    fewest: ClassVar[int] = 2  # positions besides the reserved ones: a word and its [SEP]

    @model_validator(mode="after")
    def _has_room(self) -> TextConfig:
        if self.max_text < self.fewest:
            raise ValueError(f"positions={self.positions} leaves no position for a word between the special tokens")
        return self

    @property
    def max_text(self) -> int:
        """Words of a text at most, its [SEP]s included."""
        return self.positions - self.reserved


def refuse_more_words(words: int, most: int) -> None:
    """Raise DataError if a text of the batch has more words (special tokens included) than the model has positions."""
    if words > most:
        raise DataError(
            f"a text has {words} words, but the model has positions for {most}; lower data.max_words, or raise "
            "model.positions"
        )


def refuse_more_room(room: int, config: ModelConfig) -> None:
    """Raise RecipeError if a caption is to have more words than the model has positions."""
    if room > config.max_text:
        regions = f" and max_regions={config.max_regions}" if config.regions_fixed else ""
        raise RecipeError(
            f"{room} words are needed, but positions={config.positions}{regions} leaves room for {config.max_text}"
        )


class DecoderModel(SystemModel):
    """A model with a decoder that writes one word at a time after [CLS]."""

    decodes = True

    def writing_layers(self) -> Iterable[nn.Module]:
        """The layers that a new word passes."""
        raise NotImplementedError

    def embed_next(self, words: Int[Tensor, "N 1"], place: int) -> Float[Tensor, "N 1 D"]:
        """Embed words of the target at one place."""
        raise NotImplementedError

    def begin_writing(
        self, pasts: list[LayerCache], closed: Float[Tensor, "B 1 1 P"], room: int
    ) -> tuple[Float[Tensor, "B V"], DecoderCache]:
        """Return the scores of each caption's first word, and a memory with room for `room` words."""
        memory = DecoderCache(pasts, closed, room)
        first = torch.full((closed.shape[0], 1), self.vocabulary.cls, device=closed.device)
        return self._next(first, memory)[:, 0], memory

    def follow(
        self, memory: DecoderCache, words: Int[Tensor, "B K"], parents: Int[Tensor, "B K"]
    ) -> Float[Tensor, "B K V"]:
        """Append `words[b, k]` to what beam `parents[b, k]` has written; return the scores of each beam's next word."""
        memory.take(parents)
        return self._next(words, memory)

    def _next(self, words: Int[Tensor, "B K"], memory: DecoderCache) -> Float[Tensor, "B K V"]:
        x = self.embed_next(words.view(-1, 1), memory.written).view(*words.shape, -1)
        scores: Tensor = self.heads["word"](write_word(self.writing_layers(), x, memory))
        return scores
