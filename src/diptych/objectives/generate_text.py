"""Generation of the whole text by a decoder (TDEN's MSG; captioning with encoder-decoders)."""

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import IGNORE, TARGET_AFTER_BOTH, Capability, Sample, Vocabulary
from diptych.objectives.per_sample import TargetWords


@dataclass(frozen=True)
class GenerateText(TargetWords):
    """Next-word prediction: the target block holds [CLS] and the words, labels are the words and the final [SEP].

    reads   what the encoder reads of the text. "text": what other objectives left of it. "nothing": for captioning,
            where the encoder must not see the targets.
    source  what the decoder reads. "words": those of the sentence. "hidden": the sentence with the [MASK]s of an
            objective before this one (TDEN's released code). The labels are the whole sentence in both cases.
    """

    vocabulary: Vocabulary
    reads: Literal["text", "nothing"] = "text"
    source: Literal["words", "hidden"] = "words"
    only_matched: bool = False  # no targets in mismatched pairs
    label_smoothing: float = 0.0  # spread over all other words
    name: str = "generate_text"

    @property
    def needs(self) -> frozenset[Capability]:
        """A decoder that attended to the encoder's text would copy it."""
        return frozenset({"target", *({"target without text"} if self.reads == "text" else ())})

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        words = whole_text(sample)
        read = sample.text if self.source == "hidden" else words
        skipped = self.only_matched and not sample.matched
        prepared = replace(
            sample,
            attention=TARGET_AFTER_BOTH,
            target=shifted(read, self.vocabulary.cls),
            target_labels=torch.full_like(words, IGNORE) if skipped else words,
        )
        if self.reads == "text":
            return prepared
        return replace(prepared, text=sample.text[:0], text_labels=None, text_regions=None)


def whole_text(sample: Sample) -> Int[Tensor, "T"]:
    """The text before any of its words were masked."""
    if sample.text_labels is None:
        return sample.text
    return torch.where(sample.text_labels != IGNORE, sample.text_labels, sample.text)


def shifted(words: Int[Tensor, "U"], start: int) -> Int[Tensor, "U"]:
    """The input of a decoder that writes `words`: each word one position later, `start` before the first."""
    return torch.cat([words.new_tensor([start]), words[:-1]])
