"""Generation of the whole text by a decoder: TDEN's MSG, and captioning with encoder-decoders."""

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
    """Next words, by a decoder: each word of a caption is predicted from the image and the words before it.

    Next-word prediction with a decoder.

    The decoder reads [CLS] and the words. Its labels are the words and the final [SEP].

    reads   what the encoder reads. "text": the text, as other objectives have masked it. "nothing": no text, for
            captioning
    source  what the decoder reads. "words": the original words. "hidden": the words as masked by an earlier
            objective (TDEN's released code). The labels are the original words in both cases.
    """

    vocabulary: Vocabulary
    reads: Literal["text", "nothing"] = "text"
    source: Literal["words", "hidden"] = "words"
    only_matched: bool = False  # True: mismatched pairs have no targets
    label_smoothing: float = 0.0  # label smoothing: probability that is spread over all other words
    name: str = "generate_text"

    @property
    def needs(self) -> frozenset[Capability]:
        """Capabilities of the model.

        If the encoder reads the text, the decoder must not attend to it, because it would only copy the words.
        """
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
    """Return the text of a sample as it was before masking."""
    if sample.text_labels is None:
        return sample.text
    return torch.where(sample.text_labels != IGNORE, sample.text_labels, sample.text)


def shifted(words: Int[Tensor, "U"], start: int) -> Int[Tensor, "U"]:
    """Return the decoder's input for the labels `words`: `start`, then all words but the last."""
    return torch.cat([words.new_tensor([start]), words[:-1]])
