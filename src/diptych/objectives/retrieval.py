"""Image-text matching in groups: fine-tuning for retrieval (ImageBERT, section 4.4)."""

from dataclasses import dataclass, replace
from itertools import groupby, islice
from random import Random
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from diptych.core import BIDIRECTIONAL, Batch, Capability, Partners, Sample, StateModel, States
from diptych.objectives.matching import Negatives, wrong_pairs
from diptych.objectives.per_sample import PerSample

Form = Literal["binary", "choice", "triplet"]


@dataclass(frozen=True)
class MatchGroups(PerSample):
    """Ranked pairs: an image with its text must score higher than mismatched pairs.

    Score groups of `pairs` pairs with the head "match".

    The first pair of a group is matched, the others are mismatched.

    binary   binary cross-entropy of each pair
    choice   cross-entropy over the pairs of a group (the paper's multi-class loss over P)
    triplet  the matched pair must score higher than each mismatched pair of its group, by `margin`. The paper's formula
             max[0, s+, s-] has no margin, which must be a mistake; VSE++ and TDEN have a margin of 0.2

    A mismatched pair has another caption or another image of the batch, or both kinds alternate. Captions of the same
    image, or with equal words, never make a mismatched pair. If an update has several `MatchGroups`, the first one
    makes the groups, and all score them.
    """

    form: Form = "binary"
    pairs: int = 4  # number of pairs per group (P)
    negatives: Negatives = "both"
    margin: float = 0.2
    # The scores that the triplet loss compares. In the paper they are probabilities, because its formula contains
    # their logarithm.
    on: Literal["probability", "log-odds"] = "probability"

    needs: ClassVar[frozenset[Capability]] = frozenset({"text", "regions"})
    heads: ClassVar = frozenset({"match"})
    changes: ClassVar = "pairs"

    @property
    def name(self) -> str:
        return f"match_{self.form}"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return self.pair(samples, rng, Partners.of(samples))

    def pair(self, samples: list[Sample], rng: Random, partners: Partners) -> list[Sample]:
        if any(sample.group is not None for sample in samples):
            return samples
        return [pair for sample in samples for pair in self._group(sample, rng, partners)]

    def _group(self, own: Sample, rng: Random, partners: Partners) -> list[Sample]:
        """Return the matched pair, then mismatched pairs that all differ.

        The result has fewer than `pairs` pairs if the batch is too small.
        """
        right = replace(own, group=own.key, attention=BIDIRECTIONAL)
        wanted = self.pairs - 1
        captions = {"captions": wanted, "pictures": 0, "both": (wanted + rng.randrange(2)) // 2}[self.negatives]
        return [
            right,
            *islice(wrong_pairs(right, "captions", rng, partners), captions),
            *islice(wrong_pairs(right, "pictures", rng, partners), wanted - captions),
        ]

    def count(self, batch: Batch) -> Tensor:
        """Return the number of pairs (binary), or of groups with more than one pair."""
        sizes = torch.tensor(group_sizes(batch))
        return torch.tensor(len(batch)) if self.form == "binary" else (sizes > 1).sum()

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        scores: Tensor = model.heads["match"](states).float()
        if self.form == "binary":
            return F.binary_cross_entropy_with_logits(scores, batch.matched.to(scores), reduction="sum")
        scores = scores.sigmoid() if self.form == "triplet" and self.on == "probability" else scores
        several = [group for group in torch.split(scores, group_sizes(batch)) if len(group) > 1]
        if not several:
            return scores.sum() * 0
        groups = pad_sequence(several, batch_first=True, padding_value=-torch.inf)  # (G, P); column 0: the matched pair
        if self.form == "choice":
            return (groups.logsumexp(1) - groups[:, 0]).sum()
        return (self.margin + groups[:, 1:].amax(1) - groups[:, 0]).clamp(min=0).sum()


def group_sizes(batch: Batch) -> list[int]:
    """Return the number of samples of each group, in order.

    Samples of a group are consecutive. A sample without a group is a group of its own.
    """
    names = (number if group is None else group for number, group in enumerate(batch.groups))
    return [sum(1 for _ in members) for _, members in groupby(names)]
