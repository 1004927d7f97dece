"""Image-sentence matching of unimodal embeddings (TDEN's ISM). All mismatched pairs of the batch are negatives."""

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
# Margin of the loss. The paper does not state one; 0.2 is our choice.
MARGINS: dict[Form, float] = {"paper": 0.2, "official": 0.2, "older": 0.5}


@dataclass(frozen=True)
class Similarity(PerSample):
    """Similarity of pairs: the vectors of an image and its text must be closer than those of other pairs.

    Triplet loss in both directions: the matched pair must score higher than each mismatched pair, by a margin.

    paper     mean over all mismatched pairs of a text, and of an image ("Multibatch", Tadmor et al. 2016).

    official  only the hardest mismatched pair (xmodaler).

    older     mean over the pairs that violate the margin, for texts and images separately (the repository YehLi/TDEN).
              As in that code, the result is also divided by the batch size.

    An image is never mismatched with one of its own texts. With several processes, the pairs of all processes are
    compared.

    equal_texts  papers: copies of the right text, or of its image under another name, are mismatched; content: matched
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
        own = 0 if batch.idle else len(batch)  # an idle batch has placeholders, which must not become negatives
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
        """Return the losses of each text and of each image.

        `scores[t, p]` is the score of text t with image p; `same` is True for matched pairs.
        """
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
    """Hash each text (as it was before masking) to 48 bits on the device, returned like the hashes of `_numbers`."""
    tokens = torch.where(batch.text_labels == IGNORE, batch.text, batch.text_labels)
    # The products wrap around at 64 bits, as intended for a hash.
    powers = torch.full_like(tokens[:1], 6_364_136_223_846_793_005).cumprod(1)
    hashes = ((tokens + 1) * batch.text_present * powers).sum(1)
    return torch.stack([(hashes >> 40) & 0xFFFFFF, (hashes >> 16) & 0xFFFFFF], 1).float()


def _numbers(names: list[str]) -> Float[Tensor, "n 2"]:
    """Hash each name to 48 bits, as two numbers that float32 represents exactly.

    Processes compare names by these numbers.
    """
    digests = [blake2b(name.encode(), digest_size=6).digest() for name in names]
    numbers = [[int.from_bytes(d[:3], "big"), int.from_bytes(d[3:], "big")] for d in digests]
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 2)
