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
    """Groups of `pairs` pairs: one matched pair, first, and mismatched ones. The head "match" scores each.

    binary   binary cross-entropy of each pair
    choice   cross-entropy over the pairs of a group (the paper's multi-class loss over P)
    triplet  the matched pair must beat the hardest mismatched one of its group by `margin`. The paper's formula has no
             margin, max[0, s+, s-], which cannot be meant; 0.2 is that of the works it builds on (VSE++, TDEN)

    Mismatched pairs are drawn from the batch: other captions for an image (image-to-text), other images for a caption
    (text-to-image), or both in turn. Captions of the same image or of the same words are never drawn. If an update has
    several of these objectives, the first draws the groups and all score them.
    """

    form: Form = "binary"
    pairs: int = 4  # P, pairs of a group
    negatives: Negatives = "both"
    margin: float = 0.2
    # Scores that the triplet loss compares. The paper writes log s, so its s is a probability.
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
        """The matched pair and mismatched ones, each once; fewer than `pairs` if the batch is too small."""
        right = replace(own, group=own.key, attention=BIDIRECTIONAL)
        wanted = self.pairs - 1
        captions = {"captions": wanted, "pictures": 0, "both": (wanted + rng.randrange(2)) // 2}[self.negatives]
        return [
            right,
            *islice(wrong_pairs(right, "captions", rng, partners), captions),
            *islice(wrong_pairs(right, "pictures", rng, partners), wanted - captions),
        ]

    def count(self, batch: Batch) -> Tensor:
        """Number of pairs (binary), or of groups with more than one pair."""
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
        groups = pad_sequence(several, batch_first=True, padding_value=-torch.inf)  # (G, P), the matched pair first
        if self.form == "choice":
            return (groups.logsumexp(1) - groups[:, 0]).sum()
        return (self.margin + groups[:, 1:].amax(1) - groups[:, 0]).clamp(min=0).sum()


def group_sizes(batch: Batch) -> list[int]:
    """Number of samples of each group, in order. Samples of a group follow each other; None is a group by itself."""
    names = (number if group is None else group for number, group in enumerate(batch.groups))
    return [sum(1 for _ in members) for _, members in groupby(names)]
