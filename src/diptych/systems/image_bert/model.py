"""ImageBERT (Qi et al. 2020, arXiv 2001.07966): BERT over words and regions, mainly to match images and texts.

It has four objectives. It is pre-trained in stages, and the data of each stage are closer to the task. For retrieval,
the model reads each pair of image and text together. It has no decoder. The authors released no code; docs/fidelity.md
lists what the paper leaves open.

    position   0     1   2   3  ...  n      P    P  ...  P    P        (P = config.positions - 1, never a word's)
              [CLS]  w1  w2  w3 ... [SEP]   r1   r2 ...  rN  [whole]
    segment    0     0   0   0  ...  0      1    1  ...  1    1
    block     text                         regions

[SEP] is the last token of `Sample.text`; the model adds [CLS]. A region's embedding is the layer norm of a sum: its
feature, its box as five numbers, its segment, and a position that all regions share (section 4.1). [whole] is an
additional region with a feature of the whole image, from any backbone ("w global feature", Table 4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from diptych.core import Batch, Capability, States, attention_mask
from diptych.core.shares import Layers
from diptych.models.dropout import Dropout
from diptych.models.embeddings import TextEmbedding
from diptych.models.heads import HeadSizes, answer_slot, answer_slot_state, make_heads
from diptych.models.rows import requested_mask
from diptych.models.system import ResolvedConfig, SystemModel, as_bert
from diptych.models.text import TINY, TextConfig, refuse_more_words
from diptych.models.transformer import LayerSizes, Transformer
from diptych.models.visual import WholeRegion, geometry, region_features, whole_feature, whole_region
from diptych.runtime.configs import derive
from diptych.runtime.devices import to_device

WORDS, REGIONS = 0, 1  # segment ids


class ImageBertConfig(TextConfig):
    """The config of ImageBERT: its sizes, and choices that the paper leaves open."""

    layers: Layers = 12
    """Transformer layers."""
    # The paper writes "Each embedding is projected ..., followed by Layer Normalization". This can mean a norm of the
    # sum only, as in the paper's formula, or also a norm of each projected part (feature and box).
    region_norm: Literal["sum", "each"] = "sum"
    """sum: layer norm of the sum of a region's embeddings; each: also of each embedding before the sum."""
    whole_region: WholeRegion = False
    """Whether the whole image is read as an additional region."""

    structural: ClassVar = frozenset({"region_norm"})
    segments: ClassVar = 2  # one for words and one for regions, because BERT's weights have two
    reserved: ClassVar = 2  # one position for [CLS], and one that all regions share

    def fitted(self, whole: bool) -> ImageBertConfig:
        return derive(self, whole_region=whole_region(self.whole_region, whole))

    @classmethod
    def tiny(cls, **changes: Any) -> ImageBertConfig:
        """Return a small config that trains in minutes on one CPU core."""
        return cls(**{**TINY, "layers": 3, "positions": 64, **changes})


class ImageBertResolvedConfig(ImageBertConfig, ResolvedConfig):
    """ImageBertConfig with values that depend on the data: vocabulary, feature size, number of classes and answers."""


class ImageBert(SystemModel):
    """The ImageBERT model: one encoder for words and regions."""

    config: ImageBertResolvedConfig
    provides: frozenset[Capability] = frozenset({"regions", "text", "text after regions"})

    def __init__(self, config: ImageBertResolvedConfig, heads: Iterable[str] = ("word",)) -> None:
        super().__init__(config)
        self.text = TextEmbedding(config, config.segments)
        self.regions = LocatedRegionEmbedding(config)
        self.encoder = Transformer(LayerSizes.of(config), config.layers)
        # The head has one layer, as in "we add a fully-connected layer" (section 4.3, Task 2).
        sizes = HeadSizes.of(config, class_layers=1)
        self.heads = make_heads(heads, sizes, self.text.words)
        for module in self.modules():
            as_bert(module, config.init_std)
        self.keep_layers = False  # True: also return the states of all layers in States.layers

    def forward(self, batch: Batch) -> States:
        words, text_present = self._words(batch)
        region_rows, present = self._regions(batch)
        regions, text = region_rows.shape[1], words.shape[1]
        # Regions come first, as in the attention mask. All positions attend to all, so the order does not matter.
        x, present = torch.cat([region_rows, words], 1), torch.cat([present, text_present], 1)
        allowed = attention_mask(batch.attention, regions, text, 0, present)
        layers = self.encoder(x, allowed) if self.keep_layers else []
        last = layers[-1] if layers else self.encoder.last(x, allowed, present, self._requested(batch, regions, text))
        of_regions, of_text = last.split([regions, text], 1)
        return States(
            regions=of_regions[:, : batch.boxes.shape[1]],
            text=of_text[:, 1:],
            special={
                "cls": of_text[:, 0],
                "sep": _last(of_text, text_present),
                **answer_slot_state(of_text[:, 1:], batch),
            },
            layers=tuple(layers),
        )

    def _requested(self, batch: Batch, regions: int, text: int) -> Bool[Tensor, "B L"] | None:
        """Return a mask of the positions whose last states the heads need. None: all positions."""
        blocks = {"regions": 0, "text": regions + 1}
        last = regions + batch.text_present.sum(1)
        special: dict[str, Tensor | int] = {"cls": regions, "sep": last, "slot": regions + 1 + answer_slot(batch)}
        return requested_mask(batch, self.heads, regions + text, blocks, special)

    def _words(self, batch: Batch) -> tuple[Float[Tensor, "B K D"], Bool[Tensor, "B K"]]:
        """Return the embeddings of [CLS] and the words after layer norm, and a mask that is False for padding."""
        refuse_more_words(batch.text.shape[1], self.config.max_text)
        cls = batch.text.new_full((len(batch), 1), self.vocabulary.cls)
        words = torch.cat([cls, batch.text], 1)
        positions = torch.arange(words.shape[1], device=words.device)
        embedded = self.text(words, positions, torch.full_like(words, WORDS))
        cls_present = batch.text_present.new_ones(len(batch), 1)
        return self.text.finish(embedded), torch.cat([cls_present, batch.text_present], 1)

    def _regions(self, batch: Batch) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
        """Return the embeddings of the regions after layer norm, and a mask that is False for padding.

        With whole_region, the whole image is the last region.
        """
        self.refuse_more_regions(batch)
        device = batch.boxes.device
        shared = self.text.segments(to_device(REGIONS, device)) + self.text.positions(
            to_device(self.config.positions - 1, device)
        )
        present = batch.regions_present
        if self.config.whole_region:
            present = torch.cat([present, present.new_ones(len(batch), 1)], 1)
        return self.regions(batch, shared), present


class LocatedRegionEmbedding(nn.Module):
    """Embed regions as e = LN(v + s + p_img + p_seq) (section 4.1).

    v is computed from the feature, p_img from the box as five numbers. s and p_seq are the embeddings of segment and
    position. A hidden region has a feature of zeros ("zero out"). Its box stays, so that the model knows which region
    to predict. Words have a separate layer norm, which comes from BERT.
    """

    def __init__(self, config: ImageBertResolvedConfig) -> None:
        super().__init__()
        self.feature_size = config.feature_size
        self.feature = nn.Linear(config.feature_size, config.width)
        self.place = nn.Linear(5, config.width)
        if config.whole_region:
            self.whole = nn.Linear(config.whole_size or config.feature_size, config.width)
        self.each = config.region_norm == "each"
        if self.each:
            self.feature_norm = nn.LayerNorm(config.width, config.norm_eps)
            self.place_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.norm = nn.LayerNorm(config.width, config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: Batch, shared: Float[Tensor, "D"]) -> Float[Tensor, "B P D"]:
        """Return the embeddings of all regions. `shared`: the sum of the embeddings of segment and position.

        P is R, or R + 1 if the whole image is the last region.
        """
        features = region_features(batch, self.feature_size).masked_fill(batch.hidden[..., None], 0)
        embedded, boxes = self.feature(features), geometry(batch, "paper", "paper")
        if hasattr(self, "whole"):
            embedded = torch.cat([embedded, whole_feature(batch, self.whole)[:, None]], 1)
            # The whole image as a box: its corners and its share of the area.
            all_of_it = to_device([0.0, 0.0, 1.0, 1.0, 1.0], boxes.device)
            boxes = torch.cat([boxes, all_of_it.expand(len(batch), 1, 5)], 1)
        places = self.place(boxes)
        if self.each:
            embedded, places = self.feature_norm(embedded), self.place_norm(places)
        normed: Tensor = self.dropout(self.norm(embedded + places + shared))
        return normed


def _last(text: Float[Tensor, "B K D"], present: Bool[Tensor, "B K"]) -> Float[Tensor, "B D"]:
    """Return the embedding of each text's last token, [SEP]."""
    return text[torch.arange(len(text), device=text.device), present.sum(1) - 1]
