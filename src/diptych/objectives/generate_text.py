"""A decoder writes the text: at every place it guesses the next word (TDEN's MSG; captioning of encoder-decoders)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor

from diptych.core import IGNORE, TARGET_AFTER_BOTH, Capability, Sample, Vocabulary
from diptych.objectives.target_words import TargetWords


@dataclass(frozen=True)
class GenerateText(TargetWords):
    """The target block holds [CLS] and the words, shifted by one; labels are the words and the [SEP] that ends them.

    reads   what the encoder reads of the text. "text": what other objectives left of it. "nothing": to caption, where
            the encoder must not see what the decoder is asked.
    source  what the decoder reads. "words": those of the sentence. "hidden": the sentence as an objective before this
            one has hidden it, [MASK]s and all (TDEN's released code). The labels are the whole sentence in both.
    """

    vocabulary: Vocabulary
    reads: Literal["text", "nothing"] = "text"
    source: Literal["words", "hidden"] = "words"
    only_matched: bool = False
    label_smoothing: float = 0.0  # spread over all other words
    name: str = "generate_text"

    heads: ClassVar = frozenset({"word"})
    changes: ClassVar = "input"

    @property
    def needs(self) -> frozenset[Capability]:
        """A decoder that reads the encoder's text would copy it."""
        return frozenset({"target", *({"target without text"} if self.reads == "text" else ())})

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._ask(sample) for sample in samples]

    def _ask(self, sample: Sample) -> Sample:
        words = whole_text(sample)
        read = sample.text if self.source == "hidden" else words
        quiet = self.only_matched and not sample.matched
        asked = replace(
            sample,
            attention=TARGET_AFTER_BOTH,
            target=shifted(read, self.vocabulary.cls),
            target_labels=torch.full_like(words, IGNORE) if quiet else words,
        )
        if self.reads == "text":
            return asked
        nothing = sample.text[:0]
        return replace(asked, text=nothing, text_labels=None, text_regions=None)


def whole_text(sample: Sample) -> Tensor:
    """The words before any were hidden."""
    if sample.text_labels is None:
        return sample.text
    return torch.where(sample.text_labels != IGNORE, sample.text_labels, sample.text)


def shifted(words: Tensor, start: int) -> Tensor:
    """What a decoder reads so as to write `words`: each a place later, `start` before the first."""
    return torch.cat([words.new_tensor([start]), words[:-1]])
