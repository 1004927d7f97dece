"""Image-sentence matching of unimodal embeddings: every other pair of the batch is a negative (TDEN's ISM)."""

from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from diptych.core import IGNORE, Batch, Capability, Sample, StateModel, States
from diptych.objectives.per_sample import PerSample
from diptych.objectives.ranks import of_all_ranks

Form = Literal["paper", "official", "older"]
MARGINS: dict[Form, float] = {"paper": 0.2, "official": 0.2, "older": 0.5}  # the paper gives no number


@dataclass(frozen=True)
class Similarity(PerSample):
    """Triplet loss in both directions: the matched pair must beat each mismatched one by a margin.

    paper     mean over all mismatched pairs of a text, and of an image ("Multibatch", Tadmor et al. 2016).

    official  the hardest mismatched pair only (xmodaler).

    older     mean over the pairs that violate the margin, texts and images separately (the repository YehLi/TDEN).
              As in that code, the mean is divided by the batch size too.

    Two texts of one image are not mismatched. With several processes, the pairs of all processes are compared.

    equal_texts  papers: copies of the right text and of the right image are mismatched if their names differ; content:
                 they are not
    """

    form: Form = "paper"
    margin: float | None = None
    equal_texts: Literal["papers", "content"] = "papers"
    name: str = "similarity"

    needs: ClassVar[frozenset[Capability]] = frozenset({"unimodal"})
    heads: ClassVar = frozenset({"similarity"})
    changes: ClassVar = "nothing"
    compares: ClassVar = "batch"

    def prepare_one(self, sample: Sample, rng: Random) -> Sample:
        return sample

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch))

    def loss(self, model: StateModel, states: States, batch: Batch) -> Tensor:
        own = 0 if batch.idle else len(batch)  # a placeholder is not a negative
        own_pictures, own_texts = model.heads["similarity"](states)
        pictures, mine = of_all_ranks(own_pictures[:own])
        texts, _ = of_all_ranks(own_texts[:own])
        images = batch.images if self.equal_texts == "content" else batch.pictures
        names, _ = of_all_ranks(_numbers(images[:own]).to(pictures.device, non_blocking=True))
        same = (names[:, None] == names).all(-1)
        if self.equal_texts == "content":
            words, _ = of_all_ranks(_hashes(batch)[:own])
            same |= (words[:, None] == words).all(-1)
        with torch.autocast(pictures.device.type, enabled=False):
            of_texts, of_pictures = self.costs(texts @ pictures.T, same)
        return (of_texts[mine] + of_pictures[mine]).sum()

    def costs(
        self, scores: Float[Tensor, "N N"], same: Bool[Tensor, "N N"]
    ) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
        """Losses of each text and of each image, from the scores of text t (row) with image p (column)."""
        margin, own = MARGINS[self.form] if self.margin is None else self.margin, scores.diagonal()
        by_text = (margin + scores - own[:, None]).clamp(min=0).masked_fill(same, 0)
        by_picture = (margin + scores - own).clamp(min=0).masked_fill(same, 0).T
        match self.form:
            case "paper":
                wrong = (~same).sum(1).clamp(min=1)
                return by_text.sum(1) / wrong, by_picture.sum(1) / wrong
            case "official":
                return by_text.amax(1), by_picture.amax(1)
            case _:
                return _over_violations(by_text), _over_violations(by_picture)


def _over_violations(costs: Float[Tensor, "N N"]) -> Float[Tensor, "N"]:
    return costs.sum(1) / (costs > 0).sum().clamp(min=1)


def _hashes(batch: Batch) -> Float[Tensor, "B 2"]:
    """48 bits of a hash of each text as it was before words were masked, as `_numbers`, on the device."""
    tokens = torch.where(batch.text_labels == IGNORE, batch.text, batch.text_labels)
    powers = torch.full_like(tokens[:1], 6_364_136_223_846_793_005).cumprod(1)  # wraps at 64 bits
    hashes = ((tokens + 1) * batch.text_present * powers).sum(1)
    return torch.stack([(hashes >> 40) & 0xFFFFFF, (hashes >> 16) & 0xFFFFFF], 1).float()


def _numbers(names: list[str]) -> Float[Tensor, "n 2"]:
    """48 bits of a hash of each name, as two numbers that float32 holds exactly: names that processes can compare."""
    digests = [blake2b(name.encode(), digest_size=6).digest() for name in names]
    numbers = [[int.from_bytes(d[:3], "big"), int.from_bytes(d[3:], "big")] for d in digests]
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 2)
