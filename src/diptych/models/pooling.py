"""Many states -> one vector, by attention (Yu et al., CVPR 2019: MCAN), and what compares such vectors."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.core import States, Stream
from diptych.models.transformer import CLOSED


@runtime_checkable
class PoolSizes(Protocol):
    """The part of HeadSizes that is read here."""

    @property
    def width(self) -> int: ...
    @property
    def answers(self) -> int: ...
    @property
    def similarity(self) -> int: ...
    @property
    def region_layers(self) -> int: ...
    @property
    def answer_width(self) -> int: ...
    @property
    def batch_norm(self) -> bool: ...


class AttentionPool(nn.Module):
    """A two-layer perceptron weighs the positions that are there; their weighted sum passes one layer more."""

    def __init__(self, width: int, size: int, batch_norm: bool = False) -> None:
        super().__init__()
        self.inner, self.weigh = nn.Linear(width, width), nn.Linear(width, 1)
        self.out = nn.Linear(width, size)
        self.norm = nn.BatchNorm1d(size) if batch_norm else nn.Identity()

    def forward(self, states: Float[Tensor, "B N D"], present: Bool[Tensor, "B N"]) -> Float[Tensor, "B S"]:
        scores = self.weigh(F.relu(self.inner(states)))[..., 0]
        weights = torch.softmax(scores + (~present).to(scores.dtype) * CLOSED, -1)
        pooled: Tensor = self.norm(self.out((weights[:, None] @ states)[:, 0]))
        return pooled


class LayerPools(nn.Module):
    """A pool for each of the last layers of a stream; their sum over the root of how many there are, or their sum."""

    def __init__(self, count: int, width: int, size: int, batch_norm: bool = False, scaled: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(AttentionPool(width, size, batch_norm) for _ in range(count))
        self.scale = count**-0.5 if scaled else 1.0

    def forward(self, stream: Stream) -> Float[Tensor, "B S"]:
        read = stream.layers[-len(self.layers) :]
        pooled = [pool(states, stream.present) for pool, states in zip(self.layers, read, strict=True)]
        return torch.stack(pooled).sum(0) * self.scale


class SimilarityHead(nn.Module):
    """Image-sentence matching before the modalities meet (TDEN's ISM): a vector a picture, a vector a text, each of
    length 1; how well they match is their product. Neither needs the other, so a gallery is encoded once.
    """

    reads = frozenset[str]()  # nothing that is made after the two have met

    def __init__(self, sizes: PoolSizes) -> None:
        super().__init__()
        self.regions = LayerPools(sizes.region_layers, sizes.width, sizes.similarity, sizes.batch_norm)
        self.text = AttentionPool(sizes.width, sizes.similarity, sizes.batch_norm)

    def forward(self, states: States) -> tuple[Float[Tensor, "B S"], Float[Tensor, "B S"]]:
        """Of the pictures, of the texts."""
        assert states.unimodal is not None
        regions, text = states.unimodal
        return self.of_pictures(regions), self.of_texts(text)

    def of_pictures(self, stream: Stream) -> Float[Tensor, "B S"]:
        return F.normalize(self.regions(stream).float(), dim=-1)

    def of_texts(self, stream: Stream) -> Float[Tensor, "B S"]:
        return F.normalize(self.text(stream.last, stream.present).float(), dim=-1)
