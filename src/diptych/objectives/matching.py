"""Whether a text belongs to a picture (ImageBERT's ITM; VL-BERT's sentence-image relation)."""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.core import BIDIRECTIONAL, Batch, Capability, Model, Sample, States

Negatives = Literal["captions", "pictures", "both"]


@dataclass(frozen=True)
class ImageTextMatching:
    """Some pairs of the batch are broken, and the head "match" tells which.

    negatives  what a broken pair gets from another: its caption, its picture, or either with even chances (ImageBERT:
               "negative sentences for each image" and "negative images for each sentence")
    Never within one picture, and never a caption of the same words: those would be right. Text alone is not
    asked. It prepares before anything is hidden, so that what is hidden is of the pair that is read.
    """

    rate: float = 0.5  # of the pairs that are broken
    negatives: Negatives = "both"
    name: str = "matching"

    needs: ClassVar[frozenset[Capability]] = frozenset({"text", "regions"})
    heads: ClassVar = frozenset({"match"})
    changes: ClassVar = "pairs"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return [self._perhaps_broken(sample, samples, rng) for sample in samples]

    def _perhaps_broken(self, sample: Sample, samples: list[Sample], rng: Random) -> Sample:
        sample = replace(sample, attention=BIDIRECTIONAL)
        others = foreign(sample, samples) if rng.random() < self.rate and sample.regions is not None else []
        if not others:
            return sample
        return broken(sample, rng.choice(others), self.negatives if self.negatives != "both" else rng.choice(_EITHER))

    def count(self, batch: Batch) -> Tensor:
        return batch.regions_present.any(1).sum()

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        pictured = batch.regions_present.any(1)
        scores: Tensor = model.heads["match"](states).float()[pictured]
        return F.binary_cross_entropy_with_logits(scores, batch.matched[pictured].to(scores), reduction="sum")


_EITHER: tuple[Literal["captions", "pictures"], ...] = ("captions", "pictures")


def foreign(own: Sample, samples: list[Sample]) -> list[Sample]:
    """Those of other pictures with other words."""
    return [
        other
        for other in samples
        if other.regions is not None and other.picture != own.picture and not torch.equal(other.text, own.text)
    ]


def broken(own: Sample, other: Sample, negative: str) -> Sample:
    """A pair that does not belong together: its caption, or its picture, is another's."""
    key = f"{own.key}|{other.key}"
    if negative == "captions":
        return replace(own, key=key, text=other.text, text_regions=None, matched=False)
    return replace(own, key=key, picture=other.picture, regions=other.regions, text_regions=None, matched=False)
