"""Whether a text belongs to a picture (ImageBERT's ITM; VL-BERT's sentence-image relation)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, Batch, Capability, Model, Partners, Sample, StateRequest, States

Negatives = Literal["captions", "pictures", "both"]


@dataclass(frozen=True)
class ImageTextMatching:
    """Some pairs of the batch are broken, and the head "match" tells which.

    negatives  what a broken pair gets from another: its caption, its picture, or either with even chances (ImageBERT:
               "negative sentences for each image" and "negative images for each sentence")
    adds       one wrong pair of each kind beside every right one, in the place of a share `rate` of wrong ones
    Never within one picture, and never a caption of the same words: those would be right. Text alone is not
    asked. It prepares before anything is hidden, so that what is hidden is of the pair that is read.
    """

    rate: float = 0.5  # of the pairs that are broken
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
        """One of each kind, where the batch has another that will do."""
        for negative in _KINDS if self.negatives == "both" else (self.negatives,):
            if sample.regions is not None:
                yield from islice(wrong_pairs(sample, negative, rng, partners), 1)

    def _perhaps_wrong(self, sample: Sample, rng: Random, partners: Partners) -> Sample:
        if rng.random() >= self.rate or sample.regions is None:
            return sample
        negative = self.negatives if self.negatives != "both" else rng.choice(_KINDS)
        return next(wrong_pairs(sample, negative, rng, partners), sample)

    def count(self, batch: Batch) -> Tensor:
        return self.request(batch).mask.sum()

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(samples=batch.regions_present.any(1), heads=frozenset({"match"}))

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        pictured = batch.where(self.name, self.request)
        scores: Tensor = model.heads["match"](states).float()[pictured]
        return F.binary_cross_entropy_with_logits(scores, batch.matched[pictured].to(scores), reduction="sum")


_KINDS: tuple[Literal["captions", "pictures"], ...] = ("captions", "pictures")


def wrong_pairs(
    own: Sample, negative: Literal["captions", "pictures"], rng: Random, partners: Partners
) -> Iterator[Sample]:
    """Pairs that do not belong together, in an order drawn: the caption, or the picture, is another's, of another
    picture and with other words. A picture is read when it is its turn, and passed over where it cannot be."""
    for number in _shuffled(len(partners.samples), rng):
        other = partners.samples[number]
        if other.picture == own.picture or torch.equal(other.text, own.text):
            continue
        wrong = replace(own, key=f"{own.key}|{other.key}", text_regions=None, matched=False)
        if negative == "captions":
            yield replace(wrong, text=other.text)
        elif (read := partners.read(number)) is not None:
            yield replace(wrong, picture=read.picture, regions=read.regions)


def _shuffled(count: int, rng: Random) -> Iterator[int]:
    """The numbers below `count`, drawn one by one as they are asked for (Fisher and Yates)."""
    moved: dict[int, int] = {}
    for last in reversed(range(count)):
        at = rng.randint(0, last)
        yield moved.get(at, at)
        moved[at] = moved.get(last, last)
