"""Which picture belongs to which text, before the two have met (TDEN's ISM): every other pair of the batch is wrong."""

from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from diptych.core import Batch, Capability, Model, Sample, StateRequest, States
from diptych.objectives.ranks import of_all_ranks

Form = Literal["paper", "official", "older"]
MARGINS: dict[Form, float] = {"paper": 0.2, "official": 0.2, "older": 0.5}  # the paper does not say


@dataclass(frozen=True)
class Similarity:
    """A triplet loss both ways: the right pair must beat each wrong one by a margin.

    paper     the mean over all wrong pairs of a text, and of a picture ("Multibatch", Tadmor et al. 2016)
    official  the hardest wrong one alone (xmodaler)
    older     the mean over those that come within the margin, texts and pictures apart (the repository YehLi/TDEN);
              as the code then divides it by the batch too, so does this
    Two texts of one picture are no wrong pair. With several processes the pairs of all of them are compared.
    """

    form: Form = "paper"
    margin: float | None = None
    name: str = "similarity"

    needs: ClassVar[frozenset[Capability]] = frozenset({"unimodal"})
    heads: ClassVar = frozenset({"similarity"})
    changes: ClassVar = "nothing"

    def prepare(self, samples: list[Sample], rng: Random) -> list[Sample]:
        return samples

    def count(self, batch: Batch) -> Tensor:
        return torch.tensor(len(batch))

    def request(self, batch: Batch) -> StateRequest:
        return StateRequest(heads=frozenset({"similarity"}))

    def loss(self, model: Model, states: States, batch: Batch) -> Tensor:
        own = 0 if batch.idle else len(batch)  # a sample that holds a place is nobody's wrong pair
        own_pictures, own_texts = model.heads["similarity"](states)
        pictures, mine = of_all_ranks(own_pictures[:own])
        texts, _ = of_all_ranks(own_texts[:own])
        names, _ = of_all_ranks(_numbers(batch.pictures[:own]).to(pictures.device, non_blocking=True))
        same = (names[:, None] == names).all(-1)
        with torch.autocast(pictures.device.type, enabled=False):
            of_texts, of_pictures = self.costs(texts @ pictures.T, same)
        return (of_texts[mine] + of_pictures[mine]).sum()

    def costs(
        self, scores: Float[Tensor, "N N"], same: Bool[Tensor, "N N"]
    ) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
        """Of each text, of each picture. Row t, column p: how well text t goes with picture p."""
        margin, own = self.margin if self.margin is not None else MARGINS[self.form], scores.diagonal()
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


def _numbers(names: list[str]) -> Float[Tensor, "n 2"]:
    """48 bits of a name in two numbers that float32 holds exactly, so that processes can tell names apart."""
    digests = [blake2b(name.encode(), digest_size=6).digest() for name in names]
    numbers = [[int.from_bytes(d[:3], "big"), int.from_bytes(d[3:], "big")] for d in digests]
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 2)
