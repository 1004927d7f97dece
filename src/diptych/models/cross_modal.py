"""What TDEN adds to BERT's layers: the embedding of regions with [IMG], and layers in which regions and words meet."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.core import Batch
from diptych.models.decoder import closed_of
from diptych.models.dropout import Dropout
from diptych.models.transformer import CLOSED, Layer, LayerSizes
from diptych.models.visual import geometry, region_features


class ObjectEmbedding(nn.Module):
    """norm(W_f feature + W_g box) of [IMG] and of each region; a box is its corners and its share of the picture.

    [IMG] stands for the whole picture and has the mean of the features that are not hidden. A hidden region keeps its
    box and loses its feature.
    """

    def __init__(self, feature_size: int, width: int, dropout: float, norm_eps: float) -> None:
        super().__init__()
        self.look, self.box = nn.Linear(feature_size, width), nn.Linear(5, width)
        self.norm, self.dropout = nn.LayerNorm(width, norm_eps), Dropout(dropout)

    def forward(self, batch: Batch) -> Float[Tensor, "B P D"]:
        seen = batch.regions_present & ~batch.hidden
        features = region_features(batch, self.look.in_features).masked_fill(~seen[..., None], 0)
        mean = features.sum(1, keepdim=True) / seen.sum(1).clamp(min=1)[:, None, None]
        whole = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0], device=features.device)
        boxes = torch.cat([whole.expand(len(batch), 1, 5), geometry(batch, "paper", "paper")], 1)
        total = self.look(torch.cat([mean, features], 1)) + self.box(boxes)
        embedded: Tensor = self.dropout(self.norm(total))
        return embedded


class CrossModalLayer(Layer):
    """All attend to all with the same weights. `apart`: regions then have a feed-forward of their own (the code)."""

    def __init__(self, sizes: LayerSizes, apart: bool) -> None:
        super().__init__(sizes)
        self.apart = apart
        if apart:
            self.region_inner = nn.Linear(sizes.width, sizes.ffn)
            self.region_outer = nn.Linear(sizes.ffn, sizes.width)
            self.region_norm = nn.LayerNorm(sizes.width, sizes.norm_eps)

    def forward(
        self, x: Float[Tensor, "B L D"], closed: Float[Tensor, "#B 1 #L L"], count: int = 0
    ) -> Float[Tensor, "B L D"]:
        """The first `count` positions are regions."""
        x = self.attend(x, self.attention(x, closed))
        if not self.apart:
            return self.feed(x)
        return torch.cat([self._feed_regions(x[:, :count]), self.feed(x[:, count:])], 1)

    def _feed_regions(self, x: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        inner = self.region_outer(F.gelu(self.region_inner(x)))
        normed: Tensor = self.region_norm(x + self.dropout(inner))
        return normed


def closed_over(present: Bool[Tensor, "B P"], past: Float[Tensor, "1 1 U U"]) -> Float[Tensor, "B 1 L L"]:
    """Regions see regions; words see regions and the words so far. Added to scores."""
    count, words = present.shape[1], past.shape[-1]
    closed = past.new_full((len(present), 1, count + words, count + words), CLOSED)
    closed[..., :count] = closed_of(present, past)
    closed[..., count:, count:] = past
    return closed
