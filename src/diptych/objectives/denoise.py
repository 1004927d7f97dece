"""Spans of the text become a [MASK] each and a decoder writes the whole sentence (XGPT's IDA)."""

from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from diptych.core import TARGET_AFTER_BOTH, Capability, Sample, Vocabulary
from diptych.objectives.generate_text import shifted
from diptych.objectives.target_words import TargetWords


@dataclass(frozen=True)
class Denoise(TargetWords):
    """Text infilling (BART's, Lewis et al. 2019) beside a picture: XGPT, section 4.3, Eq. 4 and appendix A.2.

    About `share` of the words are hidden, in spans whose lengths are drawn from a Poisson distribution, `at_least` so
    long. A span longer than what is left to hide is cut, and there is a word between two spans wherever there are
    enough.

    single   each span becomes one [MASK]: nothing tells how many words it had
    multi    each word of a span becomes a [MASK] (Table 4)

    grounded: the encoder does not read the words that are left, but the regions that each of them attends to (the
    paper's attention matrix A, `systems/xgpt/layers.py`).
    """

    vocabulary: Vocabulary
    share: float = 0.3
    mean_length: float = 3.0  # lambda
    at_least: int = 1
    masks: Literal["single", "multi"] = "single"
    grounded: bool = True
    label_smoothing: float = 0.0
    name: str = "denoise"

    heads: ClassVar = frozenset({"word"})
    changes: ClassVar = "input"

    @property
    def needs(self) -> frozenset[Capability]:
        return frozenset({"text", "target", "target after text", *({"grounded"} if self.grounded else ())})

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._damage(sample, rng) for sample in samples]

    def _damage(self, sample: Sample, rng: Random) -> Sample:
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
    """Where spans begin and end (exclusive) in a sentence of so many words, in order. Together they have the nearest
    number of words to `share`, or `at_least` so many, where there are."""
    hidden = min(words, max(at_least, round(share * words)))
    lengths: list[int] = []
    while (left := hidden - sum(lengths)) > 0:
        length = max(at_least, _poisson(mean_length, rng))
        lengths.append(left if left - length < at_least else length)
    seen = words - hidden
    while len(lengths) > seen + 1:  # too few words to part them all
        lengths[-2:] = [lengths[-2] + lengths[-1]]
    rng.shuffle(lengths)
    # A span stands in a gap: before, between or after the words that stay; no two in the same.
    gaps = sorted(rng.sample(range(seen + 1), len(lengths)))
    before = [0, *accumulate(lengths)]
    return [(gap + past, gap + past + length) for gap, past, length in zip(gaps, before, lengths, strict=False)]


def mask_spans(
    text: Int[Tensor, "T"], spans: list[tuple[int, int]], mask: int, masks: Literal["single", "multi"]
) -> Int[Tensor, "N"]:
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], text.new_full((1 if masks == "single" else end - start,), mask)]
        done = end
    return torch.cat([*parts, text[done:]])


def _poisson(mean: float, rng: Random) -> int:
    """Knuth's way: how many even numbers multiply to less than e^-mean."""
    count, product = 0, rng.random()
    while product > exp(-mean):
        count, product = count + 1, product * rng.random()
    return count
