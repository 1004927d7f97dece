"""Matching pictures and captions in groups: fine-tuning for retrieval (ImageBERT, section 4.4)."""

from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from diptych.core import BIDIRECTIONAL, Batch, Capability, Model, Partners, Sample, StateRequest, States
from diptych.objectives.matching import Negatives, wrong_pairs

Form = Literal["binary", "choice", "triplet"]


@dataclass(frozen=True)
class MatchGroups:
    """Each right pair stands in a group with wrong ones, `pairs` in all; the head "match" scores each.

    binary   each pair by itself: does the text belong to the picture
    choice   which pair of the group is the right one (the paper's multi-class loss over P)
    triplet  the right pair must beat the hardest wrong one of its group by `margin`. The paper's formula has no margin,
             max[0, s+, s-], and cannot be meant; 0.2 is that of the works it builds on (VSE++, TDEN)

    The wrong pairs are drawn from the batch: for a picture other captions (image-to-text), for a caption other pictures
    (text-to-image), or both in turn. Never a caption of the same picture, nor one of the same words. Of several of
    these in one update the first draws, and all score the same groups.
    """

    form: Form = "binary"
    pairs: int = 4  # P
    negatives: Negatives = "both"
    margin: float = 0.2
    # The paper writes log s, so its s is a probability; of log-odds a margin of 0.2 would be next to nothing.
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
        """As many wrong pairs as there are, each once; few batches have fewer than are wanted."""
        right = replace(own, group=own.key, attention=BIDIRECTIONAL)
        wanted = self.pairs - 1
        captions = {"captions": wanted, "pictures": 0, "both": (wanted + rng.randrange(2)) // 2}[self.negatives]
        return [
            right,
            *islice(wrong_pairs(right, "captions", rng, partners), captions),
            *islice(wrong_pairs(right, "pictures", rng, partners), wanted - captions),
        ]

    def count(self, batch: Batch) -> Tensor:
        """Pairs, or groups with something to choose from."""
        sizes = torch.tensor(group_sizes(batch))
        return torch.tensor(len(batch)) if self.form == "binary" else (sizes > 1).sum()

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(heads=frozenset({"match"}))

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        scores: Tensor = model.heads["match"](states).float()
        if self.form == "binary":
            return F.binary_cross_entropy_with_logits(scores, batch.matched.to(scores), reduction="sum")
        scores = scores if self.form == "choice" else self._scale(scores)
        several = [group for group in torch.split(scores, group_sizes(batch)) if len(group) > 1]
        if not several:
            return scores.sum() * 0
        return self._of_groups(pad_sequence(several, batch_first=True, padding_value=-torch.inf))

    def _scale(self, scores: Float[Tensor, "B"]) -> Float[Tensor, "B"]:
        return scores.sigmoid() if self.on == "probability" else scores

    def _of_groups(self, scores: Float[Tensor, "G P"]) -> Tensor:
        """The right pair is the first of its group."""
        if self.form == "choice":
            return (scores.logsumexp(1) - scores[:, 0]).sum()
        return (self.margin + scores[:, 1:].amax(1) - scores[:, 0]).clamp(min=0).sum()


def group_sizes(batch: Batch) -> list[int]:
    """Of the groups in order; the pairs of a group stand together, the right one first."""
    sizes: list[int] = []
    last: str | None = None
    for group in batch.groups:
        if group is None or group != last:
            sizes.append(0)
        sizes[-1] += 1
        last = group
    return sizes
