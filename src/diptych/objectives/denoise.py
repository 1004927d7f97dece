"""Text infilling: spans of the text are masked, and a decoder generates the whole sentence (XGPT's IDA)."""

from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp
from random import Random
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import TARGET_AFTER_BOTH, Capability, Sample, Vocabulary
from diptych.objectives.generate_text import shifted
from diptych.objectives.per_sample import TargetWords


@dataclass(frozen=True)
class Denoise(TargetWords):
    """Corrupted captions: spans of a caption are hidden, and the decoder writes the whole caption.

    Mask spans of the text, and let a decoder generate the whole sentence (XGPT, section 4.3, Eq. 4; appendix A.2).

    It is BART's text infilling (Lewis et al. 2019) with an image. About `share` of the words are masked. The length of
    a span has a Poisson distribution and is at least `at_least`. The last span is shorter if fewer words are left to
    mask. Spans are separated by at least one word, unless the sentence is too short.

    single   each span becomes one [MASK], which hides its length
    multi    each word of a span becomes a [MASK] (Table 4)

    grounded  True: the encoder reads, instead of each remaining word, the regions that the word attends to (the paper's
    attention matrix A, `systems/xgpt/layers.py`).
    """

    vocabulary: Vocabulary
    share: float = 0.3
    mean_length: float = 3.0  # mean of the Poisson distribution of a span's length, in words
    at_least: int = 1
    masks: Literal["single", "multi"] = "single"
    grounded: bool = True
    label_smoothing: float = 0.0
    name: str = "denoise"

    @property
    def needs(self) -> frozenset[Capability]:
        return frozenset({"text", "target", "target after text", *({"grounded"} if self.grounded else ())})

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        spans = draw_spans(len(sample.text) - 1, self.share, self.mean_length, rng, self.at_least)
        return replace(
            sample,
            attention=TARGET_AFTER_BOTH,
            grounded=self.grounded,
            text=mask_spans(sample.text, spans, self.vocabulary.mask, self.masks),
            text_labels=None,
            text_regions=None,
            target=shifted(sample.text, self.vocabulary.cls),
            target_labels=sample.text,
        )


def draw_spans(words: int, share: float, mean_length: float, rng: Random, at_least: int = 1) -> list[tuple[int, int]]:
    """Draw spans in a sentence of `words` words. Return their (start, end), ascending; `end` is exclusive.

    The total length of the spans is max(at_least, round(share * words)), and at most `words`.
    """
    hidden = min(words, max(at_least, round(share * words)))
    lengths: list[int] = []
    while (left := hidden - sum(lengths)) > 0:
        length = max(at_least, _poisson(mean_length, rng))
        lengths.append(left if left - length < at_least else length)
    seen = words - hidden
    while len(lengths) > seen + 1:  # too few words are left to separate all spans, so two are joined
        lengths[-2:] = [lengths[-2] + lengths[-1]]
    rng.shuffle(lengths)
    # A gap is a place before, between or after the unmasked words. Each span gets a different gap.
    gaps = sorted(rng.sample(range(seen + 1), len(lengths)))
    before = [0, *accumulate(lengths)]
    return [(gap + past, gap + past + length) for gap, past, length in zip(gaps, before, lengths, strict=False)]


def mask_spans(
    text: Int[Tensor, "T"], spans: list[tuple[int, int]], mask: int, masks: Literal["single", "multi"]
) -> Int[Tensor, "N"]:
    """Replace each span by one `mask` token (single), or each word of a span by one (multi)."""
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], text.new_full((1 if masks == "single" else end - start,), mask)]
        done = end
    return torch.cat([*parts, text[done:]])


def _poisson(mean: float, rng: Random) -> int:
    """Draw from a Poisson distribution with Knuth's algorithm."""
    count, product = 0, rng.random()
    while product > exp(-mean):
        count, product = count + 1, product * rng.random()
    return count
