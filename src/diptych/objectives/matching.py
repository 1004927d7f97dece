"""Image-text matching (ImageBERT's ITM; VL-BERT's sentence-image relation)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, Batch, Capability, Partners, Sample, StateModel, StateRequest, States
from diptych.objectives.per_sample import PerSample

Negative = Literal["captions", "pictures"]  # what a mismatched pair takes from another sample: its caption or its image
Negatives = Literal["captions", "pictures", "both"]
_KINDS: tuple[Negative, ...] = ("captions", "pictures")


@dataclass(frozen=True)
class ImageTextMatching(PerSample):
    """Matching pairs: the model decides whether an image and a text belong together.

    Classify pairs as matched or mismatched with the head "match" (ImageBERT, section 4.3, Task 4).

    The loss is binary cross-entropy.

    negatives  what a mismatched pair takes from another sample: "captions", "pictures", or "both" (one of them, with
               equal probability)
    adds       False: the share `rate` of pairs is replaced by mismatched pairs. True: all pairs are kept, and for each
               a mismatched pair of each kind is added

    Captions of the same image, or of its copies, and captions with equal words never make a mismatched pair. Samples
    without an image have no target. List this objective before objectives that mask, so that the final pair is masked.
    """

    rate: float = 0.5  # probability that a pair is replaced by a mismatched one
    negatives: Negatives = "both"
    adds: bool = False
    name: str = "matching"

    needs: ClassVar[frozenset[Capability]] = frozenset({"text", "regions"})
    heads: ClassVar = frozenset({"match"})
    changes: ClassVar = "pairs"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return self.pair(samples, rng, Partners.of(samples))

    def pair(self, samples: list[Sample], rng: Random, partners: Partners) -> list[Sample]:
        read = [replace(sample, attention=BIDIRECTIONAL) for sample in samples]
        if not self.adds:
            return [self._perhaps_wrong(sample, rng, partners) for sample in read]
        return [pair for sample in read for pair in (sample, *self._wrong(sample, rng, partners))]

    def _wrong(self, sample: Sample, rng: Random, partners: Partners) -> Iterator[Sample]:
        """Yield a mismatched pair for each kind in `negatives`, if the batch has a suitable sample."""
        for negative in _KINDS if self.negatives == "both" else (self.negatives,):
            if sample.regions is not None:
                yield from islice(wrong_pairs(sample, negative, rng, partners), 1)

    def _perhaps_wrong(self, sample: Sample, rng: Random, partners: Partners) -> Sample:
        if rng.random() >= self.rate or sample.regions is None:
            return sample
        negative = self.negatives if self.negatives != "both" else rng.choice(_KINDS)
        return next(wrong_pairs(sample, negative, rng, partners), sample)

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(samples=batch.regions_present.any(1), heads=frozenset({"match"}))

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        pictured = batch.where(self.name, self.request)
        scores: Tensor = model.heads["match"](states).float()[pictured]
        return F.binary_cross_entropy_with_logits(scores, batch.matched[pictured].to(scores), reduction="sum")


def wrong_pairs(own: Sample, negative: Negative, rng: Random, partners: Partners) -> Iterator[Sample]:
    """Yield mismatched pairs in random order: `own` with the caption or the image of another sample.

    Samples with the same image or the same words are skipped. Images are read one at a time; unreadable ones are
    skipped.
    """
    for number in _shuffled(len(partners.samples), rng):
        other = partners.samples[number]
        if other.image == own.image or torch.equal(other.text, own.text):
            continue
        wrong = replace(own, key=f"{own.key}|{other.key}", text_regions=None, matched=False)
        if negative == "captions":
            yield replace(wrong, text=other.text)
        elif (read := partners.read(number)) is not None:
            yield replace(wrong, picture=read.picture, content=read.content, regions=read.regions)


def _shuffled(count: int, rng: Random) -> Iterator[int]:
    """Yield a random permutation of range(count), drawn lazily (Fisher-Yates)."""
    moved: dict[int, int] = {}
    for last in reversed(range(count)):
        at = rng.randint(0, last)
        yield moved.get(at, at)
        moved[at] = moved.get(last, last)
