"""The model (section 3.1): one BERT over words and regions; regions come behind the words and share no position.

    position   0     1   2  ...  n      -   -  ...  -
              [CLS]  w1  w2 ... [SEP]   r1  r2 ... rN
    segment    0     0   0  ...  0      1   1  ...  1     (2 in the second picture of a pair, NLVR2)

A region is LN(LN(W f) + LN(P b) + segment); b is the box as seven numbers: corners, width, height and area, fractions
of the picture. A hidden region has a learnt vector for its feature and keeps its box (model/model.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.plugin import (
    Batch,
    Capability,
    DataError,
    Dropout,
    HeadSizes,
    LayerSizes,
    ModelConfig,
    ResolvedConfig,
    States,
    SystemModel,
    TextEmbedding,
    Transformer,
    as_bert,
    attention_mask,
    make_heads,
    region_features,
    requested_mask,
)

POOLED = ("pooled", "pooled right")  # in `States.special`: of a picture; of the right one of a pair


class UniterConfig(ModelConfig):
    """The sizes of UNITER; those of the base model are the defaults."""

    layers: PositiveInt = 12
    """Transformer layers."""
    positions: PositiveInt = 512
    """Positions of [CLS] and the words; regions have none."""
    pictures: Literal[1, 2] = 1
    """2: a record is two pictures side by side (NLVR2); each half is read by itself with the text, as one picture."""

    grows: ClassVar = frozenset({"pictures"})  # a segment for each: fine-tuning on pairs adds one

    @property
    def max_text(self) -> int:
        return self.positions - 1

    @classmethod
    def tiny(cls, **changes: Any) -> UniterConfig:
        """Trains in minutes on one core."""
        small = {"width": 128, "layers": 3, "heads": 4, "ffn": 512, "positions": 64, "max_regions": 32}
        return cls(**{**small, "init_std": 0.05, "dropout": 0.0, "attention_dropout": 0.0, **changes})

    @classmethod
    def large(cls, **changes: Any) -> UniterConfig:
        return cls(**{"width": 1024, "layers": 24, "heads": 16, "ffn": 4096, **changes})


class UniterResolvedConfig(UniterConfig, ResolvedConfig):
    """The same with what the data decide."""

    @property
    def segments(self) -> int:
        return 1 + self.pictures


class Uniter(SystemModel):
    """Words and regions in one encoder. The pooler is one for all heads that read [CLS], as in the code."""

    config: UniterResolvedConfig
    provides: frozenset[Capability] = frozenset({"regions", "text", "text after regions", "alone"})

    def __init__(self, config: UniterResolvedConfig, heads: Iterable[str] = ("word",)) -> None:
        super().__init__(config)
        self.text = TextEmbedding(config, config.segments)
        self.regions = RegionEmbedding(config)
        self.encoder = Transformer(LayerSizes.of(config), config.layers)
        width, eps = config.width, config.norm_eps
        own = {
            "match": lambda: MatchHead(nn.Linear(width, 2)),
            "answer": lambda: pooled_classes(width, config.answers, eps),
            "entailment": lambda: pooled_classes(width, 3, eps),
            "nlvr": lambda: PooledHead(nn.Linear(width * config.pictures, 2), of=POOLED[: config.pictures]),
            "region_feature": lambda: FeatureHead(self.regions.feature, eps),
        }
        self.heads = make_heads({"pooler", *heads}, HeadSizes.of(config), self.text.words, own)
        for module in self.modules():
            as_bert(module, config.init_std)

    def forward(self, batch: Batch) -> States:
        if self.config.pictures == 1:
            return self.read(batch, batch.text.new_ones(len(batch)))
        pair = halves(batch)
        return joined(self.read(pair, torch.tensor([1, 2], device=batch.text.device).repeat(len(batch))), pair)

    def read(self, batch: Batch, segments: Int[Tensor, "B"]) -> States:
        """States of texts with one picture each, whose regions are of these segments."""
        self.refuse_more_regions(batch)
        if batch.text.shape[1] > self.config.max_text:
            raise DataError(
                f"a text of {batch.text.shape[1]} words, and there are positions for {self.config.max_text}; cut it, "
                "or set positions",
                key=batch.keys[0],
            )
        words = torch.cat([batch.text.new_full((len(batch), 1), self.vocabulary.cls), batch.text], 1)
        places = torch.arange(words.shape[1], device=words.device)
        text = self.text.finish(self.text(words, places, torch.zeros_like(words)))
        seen = self.regions(batch, self.text.segments(segments)[:, None])
        count = seen.shape[1]
        present = torch.cat([batch.regions_present, batch.text_present.new_ones(len(batch), 1), batch.text_present], 1)
        allowed = attention_mask(batch.attention, count, words.shape[1], 0, present)
        last = count + batch.text_present.sum(1)
        asked = requested_mask(
            batch, self.heads, present.shape[1], {"regions": 0, "text": count + 1}, {"cls": count, "sep": last}
        )
        x = self.encoder.last(torch.cat([seen, text], 1), allowed, present, asked)
        cls, sep = x[:, count], x[torch.arange(len(x), device=x.device), last]
        special = {"cls": cls, "sep": sep, POOLED[0]: self.heads["pooler"](cls)}
        return States(regions=x[:, :count], text=x[:, count + 1 :], special=special)


class RegionEmbedding(nn.Module):
    """Feature, box and segment of each region (UniterImageEmbeddings)."""

    def __init__(self, config: UniterResolvedConfig) -> None:
        super().__init__()
        self.feature = nn.Linear(config.feature_size, config.width)
        self.feature_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.place = nn.Linear(7, config.width)
        self.place_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.hidden = nn.Parameter(torch.randn(config.feature_size) * config.init_std)
        self.norm = nn.LayerNorm(config.width, config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: Batch, segments: Float[Tensor, "B 1 D"]) -> Float[Tensor, "B R D"]:
        features = region_features(batch, len(self.hidden))
        features = torch.where(batch.hidden[..., None], self.hidden.to(features.dtype), features)
        sizes = batch.boxes[..., 2:] - batch.boxes[..., :2]
        boxes = torch.cat([batch.boxes, sizes, sizes.prod(-1, keepdim=True)], -1)
        total = self.feature_norm(self.feature(features)) + self.place_norm(self.place(boxes)) + segments
        normed: Tensor = self.dropout(self.norm(total))
        return normed


class PooledHead(nn.Module):
    """Scores from the pooled [CLS], or those of two pictures behind each other."""

    def __init__(self, *layers: nn.Module, of: Sequence[str] = POOLED[:1]) -> None:
        super().__init__()
        self.layers, self.of = nn.Sequential(*layers), of
        self.reads = frozenset({"cls", *of})  # pooled states are made of that of [CLS]

    def forward(self, states: States) -> Tensor:
        scores: Tensor = self.layers(torch.cat([states.special[name] for name in self.of], -1))
        return scores


class MatchHead(PooledHead):
    """Whether text and picture belong together: log-odds of two classes, "does not" and "does" (itm_output)."""

    def forward(self, states: States) -> Float[Tensor, "B"]:
        scores = super().forward(states)
        return scores[:, 1] - scores[:, 0]


def pooled_classes(width: int, classes: int, eps: float) -> PooledHead:
    """The code's vqa_output, of answers and of entailment (model/vqa.py, model/ve.py)."""
    return PooledHead(
        nn.Linear(width, 2 * width), nn.GELU(), nn.LayerNorm(2 * width, eps), nn.Linear(2 * width, classes)
    )


class FeatureHead(nn.Module):
    """A hidden region's feature, by the weights that read features, turned round (RegionFeatureRegression)."""

    def __init__(self, feature: nn.Linear, eps: float) -> None:
        super().__init__()
        width = feature.out_features
        self.net = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps))
        self.bias = nn.Parameter(torch.zeros(feature.in_features))
        self.tied = (feature,)  # held and not registered, so that its weight is stored once

    def forward(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N F"]:
        return F.linear(self.net(states), self.tied[0].weight.t(), self.bias)


def halves(batch: Batch) -> Batch:
    """Two rows for each: the picture's left half, then its right half, each as a picture with boxes of its own."""
    twice = replace(batch.repeat(2), request=None)
    right = torch.arange(len(twice), device=batch.boxes.device)[:, None] % 2 == 1
    in_right = twice.boxes[..., [0, 2]].mean(-1) >= 0.5
    x = twice.boxes[..., [0, 2]] * 2 - right[..., None].to(twice.boxes.dtype)
    boxes = torch.stack([x[..., 0], twice.boxes[..., 1], x[..., 1], twice.boxes[..., 3]], -1)
    return replace(twice, boxes=boxes, regions_present=twice.regions_present & (in_right == right))


def joined(states: States, pair: Batch) -> States:
    """Back to a row for each: a region's state is of its half, the words' of the left one."""
    regions = torch.where(pair.regions_present[1::2, :, None], states.regions[1::2], states.regions[::2])
    special = {name: value[::2] for name, value in states.special.items()}
    return States(regions, states.text[::2], special={**special, POOLED[1]: states.special[POOLED[0]][1::2]})
