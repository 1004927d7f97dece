"""A fragment of the text is hidden and a decoder writes it (XGPT's IMLM; MASS where there is no picture)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch

from diptych.core import IGNORE, TARGET_AFTER_BOTH, Capability, Sample, Vocabulary
from diptych.objectives.generate_text import shifted
from diptych.objectives.target_words import TargetWords
from diptych.objectives.words import Scheme, hide_words


@dataclass(frozen=True)
class GenerateFragment(TargetWords):
    """One run of words, about `share` of the sentence, is hidden word by word, so that its length is told.

    The target holds the fragment alone, shifted by one, at its own places in the sentence (`Sample.target_start`), as
    in MASS (Song et al. 2019, section 3.1): all else has to come from the encoder. The [SEP] that ends the text is
    neither hidden nor written. XGPT, section 4.3, Eq. 3 and appendix A.2.

    context   the decoder reads the words before the fragment too, as Eq. 3 read to the letter has it
    """

    vocabulary: Vocabulary
    share: float = 0.5
    scheme: Scheme = (0.8, 0.1, 0.1)
    alone: bool = False  # without the picture: pre-training on text
    context: bool = False
    label_smoothing: float = 0.0
    name: str = "generate_fragment"

    heads: ClassVar = frozenset({"word"})
    changes: ClassVar = "input"

    @property
    def needs(self) -> frozenset[Capability]:
        return frozenset({"text", "target", "target after text", *({"alone"} if self.alone else ())})

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._hide(sample, rng) for sample in samples]

    def _hide(self, sample: Sample, rng: Random) -> Sample:
        words = len(sample.text) - 1
        length = fragment_length(words, self.share)
        start = rng.randint(0, words - length)
        places = ([place] for place in range(start, start + length))
        read = 0 if self.context else start  # from where on
        written = sample.text[read : start + length]
        return replace(
            sample,
            regions=None if self.alone else sample.regions,
            attention=TARGET_AFTER_BOTH,
            text=hide_words(sample.text, places, self.vocabulary, self.scheme, rng),
            target=shifted(written, self.vocabulary.cls) if length else written,
            target_labels=written.masked_fill(torch.arange(len(written)) < start - read, IGNORE),
            target_start=read,
        )


def fragment_length(words: int, share: float) -> int:
    """Of a sentence of so many words: the nearest to its share, at least one where there is one."""
    return min(words, max(1, round(share * words)))
