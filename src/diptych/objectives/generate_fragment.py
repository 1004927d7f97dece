"""Generation of a masked fragment by a decoder (XGPT's IMLM; MASS if there is no image)."""

from dataclasses import dataclass, replace
from random import Random

import torch

from diptych.core import IGNORE, TARGET_AFTER_BOTH, Capability, Sample, Vocabulary
from diptych.objectives.generate_text import shifted
from diptych.objectives.per_sample import TargetWords
from diptych.objectives.words import Scheme, hide_words


@dataclass(frozen=True)
class GenerateFragment(TargetWords):
    """Hidden fragments: the decoder writes the words that were hidden in a caption.

    Mask a fragment of consecutive words, about `share` of the text. The decoder generates it (XGPT's IMLM).

    See XGPT, section 4.3, Eq. 3 and appendix A.2. As in MASS (Song et al. 2019, section 3.1), the decoder reads only
    the fragment, shifted by one word. It knows the rest of the text only through the encoder. `Sample.target_start` is
    the fragment's position in the sentence. The final [SEP] is neither masked nor generated.

    context   True: the decoder also reads the words before the fragment, as in Eq. 3
    """

    vocabulary: Vocabulary
    share: float = 0.5
    scheme: Scheme = (0.8, 0.1, 0.1)
    alone: bool = False  # True: the image is removed, for pre-training on text
    context: bool = False
    label_smoothing: float = 0.0
    name: str = "generate_fragment"

    @property
    def needs(self) -> frozenset[Capability]:
        return frozenset({"text", "target", "target after text", *({"alone"} if self.alone else ())})

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        words = len(sample.text) - 1
        length = fragment_length(words, self.share)
        start = rng.randint(0, words - length)
        places = ([place] for place in range(start, start + length))
        first = 0 if self.context else start  # index of the decoder's first word
        written = sample.text[first : start + length]
        return replace(
            sample,
            regions=None if self.alone else sample.regions,
            attention=TARGET_AFTER_BOTH,
            text=hide_words(sample.text, places, self.vocabulary, self.scheme, rng),
            target=shifted(written, self.vocabulary.cls) if length else written,
            target_labels=written.masked_fill(torch.arange(len(written)) < start - first, IGNORE),
            target_start=first,
        )


def fragment_length(words: int, share: float) -> int:
    """Return the fragment's length: round(share * words), but at least 1 and at most `words`."""
    return min(words, max(1, round(share * words)))
