"""Layers that only TDEN uses: embeddings of [IMG] and regions, cross-modal layers, and heads."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.core import Batch, States, Stream
from diptych.models.decoder import closed_of
from diptych.models.dropout import Dropout
from diptych.models.heads import HeadSizes
from diptych.models.pooling import AttentionPool, LayerPools
from diptych.models.rows import Rows
from diptych.models.transformer import CLOSED, Layer, LayerSizes, run_last
from diptych.models.visual import geometry, region_features
from diptych.runtime.devices import to_device


class ObjectEmbedding(nn.Module):
    """Embed [IMG] and the regions as norm(W_f feature + W_g box).

    A box is five numbers: corners and share of the image's area.

    [IMG] represents the whole image; its feature is the mean of the features that are not hidden. A hidden region has
    no feature, but keeps its box.
    """

    def __init__(self, feature_size: int, width: int, dropout: float, norm_eps: float) -> None:
        super().__init__()
        self.feature, self.box = nn.Linear(feature_size, width), nn.Linear(5, width)
        self.norm, self.dropout = nn.LayerNorm(width, norm_eps), Dropout(dropout)

    def forward(self, batch: Batch) -> Float[Tensor, "B P D"]:
        visible = batch.regions_present & ~batch.hidden
        features = region_features(batch, self.feature.in_features).masked_fill(~visible[..., None], 0)
        mean = features.sum(1, keepdim=True) / visible.sum(1).clamp(min=1)[:, None, None]
        whole = to_device([0.0, 0.0, 1.0, 1.0, 1.0], features.device)
        boxes = torch.cat([whole.expand(batch.boxes.shape[0], 1, 5), geometry(batch, "paper", "paper")], 1)
        total = self.feature(torch.cat([mean, features], 1)) + self.box(boxes)
        embedded: Tensor = self.dropout(self.norm(total))
        return embedded


class CrossModalLayer(Layer):
    """A layer in which regions and words attend to each other, with the same attention weights for both.

    `own_ffn`: regions have a separate feed-forward layer, as in the released code.
    """

    def __init__(self, sizes: LayerSizes, own_ffn: bool) -> None:
        super().__init__(sizes)
        self.own_ffn = own_ffn
        if own_ffn:
            self.region_inner = nn.Linear(sizes.width, sizes.ffn)
            self.region_outer = nn.Linear(sizes.ffn, sizes.width)
            self.region_norm = nn.LayerNorm(sizes.width, sizes.norm_eps)

    def forward(
        self, x: Float[Tensor, "*N D"], closed: Float[Tensor, "#B 1 #K P"], count: int = 0, *, rows: Rows | None = None
    ) -> Float[Tensor, "*n D"]:
        """Return the states after the layer. The first `count` positions are regions."""
        if not self.own_ffn:
            return super().forward(x, closed, rows=rows)
        if rows is None:
            x = self.attend(x, self.attention(x, closed))
            return torch.cat([self._feed_regions(x[:, :count]), self.feed(x[:, count:])], 1)
        x = self.attend(rows.own(x), self.attention(x, closed, rows))
        return torch.where(rows.before(count), self._feed_regions(x), self.feed(x))

    def _feed_regions(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        inner = self.region_outer(F.gelu(self.region_inner(x)))
        normed: Tensor = self.region_norm(x + self.dropout(inner))
        return normed


def closed_over(present: Bool[Tensor, "B P"], past: Float[Tensor, "1 1 U U"]) -> Float[Tensor, "B 1 L L"]:
    """Return the mask that is added to attention scores.

    Regions attend to regions; words attend to regions and earlier words.
    """
    count, words = present.shape[1], past.shape[-1]
    closed = past.new_full((present.shape[0], 1, count + words, count + words), CLOSED)
    closed[..., :count] = closed_of(present, past)
    closed[..., count:, count:] = past
    return closed


def through(
    layers: nn.ModuleList, x: Tensor, present: Tensor, *count: int, requested: Bool[Tensor, "B L"] | None = None
) -> Stream:
    """Run layers in which all positions attend to all. Return the states after each layer.

    `count`: number of regions, for cross-modal layers.
    """
    return Stream(after_each(layers, x, closed_of(present, x), *count, requested=requested), present)


def after_each(
    layers: nn.ModuleList, x: Tensor, closed: Tensor, *more: Any, requested: Bool[Tensor, "B L"] | None = None
) -> tuple[Tensor, ...]:
    """Return the states after each layer. If there are no layers, return only the input.

    `more`: further arguments for each layer.
    """
    states = [x]
    for layer in layers:
        states.append(run_last(layer, states[-1], closed, *more, requested=requested if layer is layers[-1] else None))
    return tuple(states[1:]) or (x,)


class OneAnswer(nn.Module):
    """The paper's answer classifier, which returns one logit per answer.

    The states of image, question and decoder are each pooled to a vector. A linear layer reads the sum of the vectors.
    """

    def __init__(self, sizes: HeadSizes, streams: int, answers: int) -> None:
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
    """The released code's answer classifier on the cross-modal encoder.

    The score is computed from the product of two vectors, of the image (pooled after each layer) and of the question.
    In the code, VCR models have only this classifier, with one score per choice.
    """

    def __init__(self, sizes: HeadSizes, layers: int, answers: int) -> None:
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
    """The released code's two answer classifiers.

    One classifier reads the encoder's states, the other the states of the decoder, which also reads the question.
    """

    def __init__(self, sizes: HeadSizes, layers: int) -> None:
        super().__init__()
        self.read = ReadAnswer(sizes, layers, sizes.answers)
        self.pool = AttentionPool(sizes.width, sizes.answer_width)
        self.out = nn.Sequential(nn.LayerNorm(sizes.answer_width), nn.Linear(sizes.answer_width, sizes.answers))

    def forward(self, states: States) -> Float[Tensor, "B 2 A"]:
        assert states.written is not None
        written = self.out(self.pool(states.written.last, states.written.present))
        return torch.stack([self.read(states), written], 1)


class PairHead(nn.Module):
    """Score how well image and text match.

    As in ViLBERT, the score is computed by a linear layer from the product of the states of [IMG] and [CLS].
    """

    reads = frozenset({"img", "cls"})

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.out = nn.Linear(sizes.width, 1)

    def forward(self, states: States) -> Float[Tensor, "B"]:
        scores: Tensor = self.out(states.special["img"] * states.special["cls"])[:, 0]
        return scores
