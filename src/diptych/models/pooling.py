"""Many states -> one vector, by attention (Yu et al., CVPR 2019: MCAN), and what TDEN makes of such vectors."""

from __future__ import annotations

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


class OneAnswer(nn.Module):
    """The paper's: one vector of picture, question and decoder, each pooled; then the answers. Before the sigmoid."""

    def __init__(self, sizes: PoolSizes, streams: int, answers: int) -> None:
        super().__init__()
        self.pools = nn.ModuleList(AttentionPool(sizes.width, sizes.answer_width) for _ in range(streams))
        self.norm = nn.LayerNorm(sizes.answer_width)
        self.out = nn.Linear(sizes.answer_width, answers)

    def forward(self, states: States) -> Float[Tensor, "B A"]:
        assert states.joint is not None
        streams = [*states.joint, *([states.written] if states.written is not None else [])]
        pooled = [pool(stream.last, stream.present) for pool, stream in zip(self.pools, streams, strict=True)]
        scores: Tensor = self.out(self.norm(torch.stack(pooled).sum(0)))
        return scores


class ReadAnswer(nn.Module):
    """The released code's classifier over the cross-modal encoder: the picture, pooled after each layer, times the
    question. Its VCR model has this one alone, with one score a choice."""

    def __init__(self, sizes: PoolSizes, layers: int, answers: int) -> None:
        super().__init__()
        self.regions = LayerPools(layers, sizes.width, sizes.answer_width, scaled=False)
        self.text = AttentionPool(sizes.width, sizes.answer_width)
        self.out = nn.Sequential(nn.LayerNorm(sizes.answer_width), nn.Linear(sizes.answer_width, answers))

    def forward(self, states: States) -> Float[Tensor, "B A"]:
        assert states.joint is not None
        regions, text = states.joint
        scores: Tensor = self.out(self.regions(regions) * self.text(text.last, text.present))
        return scores


class TwoAnswers(nn.Module):
    """The released code's: a classifier over the encoder, and one over the decoder, which has read the question too."""

    def __init__(self, sizes: PoolSizes, layers: int) -> None:
        super().__init__()
        self.read = ReadAnswer(sizes, layers, sizes.answers)
        self.pool = AttentionPool(sizes.width, sizes.answer_width)
        self.out = nn.Sequential(nn.LayerNorm(sizes.answer_width), nn.Linear(sizes.answer_width, sizes.answers))

    def forward(self, states: States) -> Float[Tensor, "B 2 A"]:
        assert states.written is not None
        written = self.out(self.pool(states.written.last, states.written.present))
        return torch.stack([self.read(states), written], 1)


class PairHead(nn.Module):
    """Whether picture and text belong together: ViLBERT's, over [IMG] times [CLS] after they have met."""

    def __init__(self, sizes: PoolSizes) -> None:
        super().__init__()
        self.out = nn.Linear(sizes.width, 1)

    def forward(self, states: States) -> Float[Tensor, "B"]:
        scores: Tensor = self.out(states.special["img"] * states.special["cls"])[:, 0]
        return scores
