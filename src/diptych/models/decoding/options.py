"""Settings of decoding: greedy search, beam search or sampling."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from diptych.runtime.decoding import decoding_field
from diptych.runtime.errors import RecipeError


class DecodingOptions(BaseModel):
    """Settings of decoding; the default is greedy search.

    "Words" in their names are tokens, so a word such as `kites` may count as two.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    beams: int = decoding_field("beams", 1)
    max_words: int = decoding_field("max_words", 20)
    min_words: int = decoding_field("min_words", 0)
    length_bonus: float = decoding_field("length_bonus", 0.0)
    length_penalty: float = decoding_field("length_penalty", 0.0)
    no_repeat_ngram: int | None = decoding_field("no_repeat_ngram")
    ended: Literal["dropped", "kept"] = "dropped"
    """Whether another beam takes the place of an ended beam (dropped), or the ended beam stays (kept, TDEN's code)."""
    stop_early: bool = True
    """Whether the search for one text stops when no other beam can reach a higher score; the result is the same."""
    sample: bool = False
    """Whether words are sampled instead of searched."""
    temperature: float = decoding_field("temperature", 1.0)
    top_k: int | None = decoding_field("top_k")
    top_p: float | None = decoding_field("top_p")
    captions: PositiveInt | None = None
    """Number of texts per image, best first; null: all beams that ended, or one sampled text."""

    @model_validator(mode="after")
    def _agrees(self) -> DecodingOptions:
        if self.min_words > self.max_words:
            raise ValueError(f"min_words={self.min_words} is more than max_words={self.max_words}; lower min_words")
        if self.length_penalty and self.length_bonus:
            raise ValueError("length_penalty and length_bonus are two ways to weigh length: set one of them to 0")
        if self.sample and self.beams > 1:
            raise ValueError(
                f"sample=true cannot be combined with beam search (beams={self.beams}); set beams=1, and captions=N "
                "for several texts"
            )
        given = {"temperature": self.temperature != 1, "top_k": self.top_k, "top_p": self.top_p}
        if not self.sample and (idle := [name for name, value in given.items() if value]):
            raise ValueError(f"only sampling uses {' and '.join(idle)}; add sample=true")
        if not self.sample and self.captions is not None and self.captions > self.beams:
            raise ValueError(
                f"captions={self.captions} is more than beams={self.beams}; raise beams, or add sample=true"
            )
        return self

    @property
    def width(self) -> int:
        """Number of texts that are generated in parallel (K)."""
        return (self.captions or 1) if self.sample else self.beams

    def fit(self, words: int) -> DecodingOptions:
        """Return these options unchanged.

        Raises RecipeError if beams or `top_k` exceed `words`, the size of the vocabulary.
        """
        wanted = self.top_k if self.sample else self.beams
        if wanted is not None and wanted > words:
            name = "top_k" if self.sample else "beams"
            raise RecipeError(f"decoding.{name}={wanted} is more than the {words} words of the vocabulary; lower it")
        return self

    def weigh(self, score: float, words: int) -> float:
        """Adjust the log-probability `score` of a finished text for its length. `words` includes the final [SEP]."""
        return score / float(words**self.length_penalty) + self.length_bonus * words
