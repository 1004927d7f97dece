"""Attention pooling of a sequence of states to one vector (MCAN, Yu et al., CVPR 2019)."""

from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.core import Stream
from diptych.models.transformer import CLOSED


class AttentionPool(nn.Module):
    """A weighted sum of the present positions, followed by a linear layer.

    A two-layer perceptron computes the weights.
    """

    def __init__(self, width: int, size: int, batch_norm: bool = False) -> None:
        super().__init__()
        self.inner, self.weigh = nn.Linear(width, width), nn.Linear(width, 1)
        self.out = nn.Linear(width, size)
        self.norm = nn.BatchNorm1d(size) if batch_norm else nn.Identity()

    def forward(self, states: Float[Tensor, "B N D"], present: Bool[Tensor, "B N"]) -> Float[Tensor, "B S"]:
        scores = self.weigh(F.relu(self.inner(states)))[..., 0]
        weights = torch.softmax(scores + (~present).to(scores.dtype) * CLOSED, -1)
        return cast(Tensor, self.norm(self.out((weights[:, None] @ states)[:, 0])))


class LayerPools(nn.Module):
    """Pool each of the last `count` layers of a stream, and add the results.

    If `scaled`, the sum is divided by sqrt(count).
    """

    def __init__(self, count: int, width: int, size: int, batch_norm: bool = False, scaled: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(AttentionPool(width, size, batch_norm) for _ in range(count))
        self.scale = count**-0.5 if scaled else 1.0

    def forward(self, stream: Stream) -> Float[Tensor, "B S"]:
        read = stream.layers[-len(self.layers) :]
        pooled = [pool(states, stream.present) for pool, states in zip(self.layers, read, strict=True)]
        return torch.stack(pooled).sum(0) * self.scale
