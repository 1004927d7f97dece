"""A sixth system, as docs/add-a-model.md adds one: its model, its objectives, its recipe, and its entry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

import pytest
import torch
from torch import nn

from diptych.plugin import (
    BIDIRECTIONAL,
    Batch,
    Capability,
    HeadSizes,
    MaskedLanguage,
    ModelConfig,
    Objectives,
    ResolvedConfig,
    Schedule,
    Selection,
    States,
    System,
    SystemModel,
    Vocabulary,
    add_system,
    as_bert,
    make_heads,
    preset,
    region_features,
    weighed,
)
from tests.support.tables import added

NAME = "sixth"


class SixthConfig(ModelConfig):
    layers: int = 1
    marks: int = 1  # rows of an embedding, of which [CLS] takes the last

    grows: ClassVar = frozenset({"marks"})

    @property
    def max_text(self) -> int:
        return self.positions


class SixthResolvedConfig(SixthConfig, ResolvedConfig):
    pass


class Sixth(SystemModel):
    """[CLS], regions, words: one of torch's own encoders, without positions."""

    config: SixthResolvedConfig
    provides: frozenset[Capability] = frozenset({"regions", "text"})

    def __init__(self, config: SixthResolvedConfig, heads: Iterable[str] = ("word",)) -> None:
        super().__init__(config)
        self.words = nn.Embedding(config.vocabulary.size, config.width)
        self.marks = nn.Embedding(config.marks, config.width)
        self.look = nn.Linear(config.feature_size, config.width)
        layer = nn.TransformerEncoderLayer(config.width, config.heads, config.ffn, config.dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.heads = make_heads(heads, HeadSizes.of(config), self.words)
        for module in self.modules():
            as_bert(module, config.init_std)

    def forward(self, batch: Batch) -> States:
        self.refuse_more_regions(batch)
        cls = batch.text.new_full((len(batch), 1), self.config.vocabulary.cls)
        looks = self.look(region_features(batch, self.config.feature_size).masked_fill(batch.hidden[..., None], 0))
        x = torch.cat([self.words(cls) + self.marks.weight[-1], looks, self.words(batch.text)], 1)
        there = torch.cat([batch.text_present.new_ones(len(batch), 1), batch.regions_present, batch.text_present], 1)
        first, regions, text = self.encoder(x, src_key_padding_mask=~there).split(
            [1, looks.shape[1], batch.text.shape[1]], 1
        )
        last = text[torch.arange(len(batch), device=text.device), batch.text_present.sum(1) - 1]
        return States(regions=regions, text=text, special={"cls": first[:, 0], "sep": last})


class SixthObjectives(Objectives):
    kind: Literal["sixth"] = "sixth"
    rate: float = 0.15

    def schedule(self, vocabulary: Vocabulary) -> Schedule:
        return weighed((MaskedLanguage(vocabulary, rate=self.rate, attention=((BIDIRECTIONAL, 1.0),)), 1.0))


PRETRAIN = preset(
    f"{NAME}/small/pretrain",
    "Pre-training of the sixth system.",
    system=NAME,
    task="pretrain",
    model=SixthConfig(width=16, heads=2, ffn=32, positions=24, max_regions=8),
    objectives=SixthObjectives(),
    optimizer={"kind": "adamw", "lr": 1e-3, "weight_decay": 0.01, "clip": 1.0},
    training={"batch": 4, "steps": 4, "precision": "fp32", "validate_every": 2, "checkpoint_every": 4},
    data={"split": "train"},
)
ENTRY = System(
    name=NAME,
    title="Sixth",
    paper="0000.00000",
    config=SixthConfig,
    resolved=SixthResolvedConfig,
    model=Sixth,
    selection=Selection(most=100, least=100),
    objectives=SixthObjectives,
    recipes=(PRETRAIN,),
)


def add(tables: pytest.MonkeyPatch) -> None:
    """All that has to be done."""
    added(tables, lambda: add_system(ENTRY))
