"""Parts for texts that several systems use: limits on the number of words, and a base class of decoders."""

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

# Settings of a model that trains in minutes on one core. With BERT's width and init_std of 0.02, a layer's output is
# about half as large as its input. Width 128 needs init_std 0.05 for the same ratio; with 0.02, training takes twice as
# many steps.
TINY: dict[str, Any] = {"width": 128, "heads": 4, "ffn": 512, "max_regions": 32, "init_std": 0.05}


class TextConfig(ModelConfig):
    """A config of a model whose sequence of positions holds words and `reserved` other tokens."""

    reserved: ClassVar[int]  # number of positions for special tokens, which words cannot use
    fewest: ClassVar[int] = 2  # minimum number of positions for words: one word and [SEP]

    @model_validator(mode="after")
    def _has_room(self) -> TextConfig:
        if self.max_text < self.fewest:
            raise ValueError(f"positions={self.positions} is too small for words and the special tokens; raise it")
        return self

    @property
    def max_text(self) -> int:
        """Maximum number of words of a text, including each [SEP]."""
        return self.positions - self.reserved


def refuse_more_words(words: int, most: int) -> None:
    """Raise DataError if a text has more words (including special tokens) than the model has positions (`most`)."""
    if words > most:
        raise DataError(
            f"a text has {words} words, but the model has positions for {most}; shorten it, or for training "
            "lower data.max_words or raise model.positions"
        )


def refuse_more_room(room: int, config: ModelConfig) -> None:
    """Raise RecipeError if captions of `room` words need more positions than the model has."""
    if room > config.max_text:
        regions = f" and max_regions={config.max_regions}" if config.regions_fixed else ""
        raise RecipeError(
            f"the captions need {room} words, but positions={config.positions}{regions} leaves room for "
            f"{config.max_text}; lower max_words"
        )


class DecoderModel(SystemModel):
    """Base class of models whose decoder generates one word at a time, after [CLS]."""

    decodes = True

    def writing_layers(self) -> Iterable[nn.Module]:
        """Return the layers of the decoder."""
        raise NotImplementedError

    def embed_next(self, words: Int[Tensor, "N 1"], place: int) -> Float[Tensor, "N 1 D"]:
        """Embed words at position `place` of the target."""
        raise NotImplementedError

    def begin_writing(
        self, pasts: list[LayerCache], closed: Float[Tensor, "B 1 1 P"], room: int
    ) -> tuple[Float[Tensor, "B V"], DecoderCache]:
        """Return the scores of the first word of each image's caption, and a cache for `room` words.

        `pasts` has a cache per layer.
        """
        memory = DecoderCache(pasts, closed, room)
        first = torch.full((closed.shape[0], 1), self.vocabulary.cls, device=closed.device)
        return self._next(first, memory)[:, 0], memory

    def follow(
        self, memory: DecoderCache, words: Int[Tensor, "B K"], parents: Int[Tensor, "B K"]
    ) -> Float[Tensor, "B K V"]:
        """Append the word `words[b, k]` to beam `parents[b, k]` of sample b. The result is the new beam k.

        Return the scores of each beam's next word.
        """
        memory.take(parents)
        return self._next(words, memory)

    def _next(self, words: Int[Tensor, "B K"], memory: DecoderCache) -> Float[Tensor, "B K V"]:
        x = self.embed_next(words.view(-1, 1), memory.written).view(*words.shape, -1)
        scores: Tensor = self.heads["word"](write_word(self.writing_layers(), x, memory))
        return scores
