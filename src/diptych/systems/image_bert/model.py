"""ImageBERT (Qi et al. 2020, arXiv 2001.07966): BERT over words and regions, to match images and texts.

The sequence is the plainest of all systems. What is special: four objectives, stages of pre-training on data ever
closer to the task, and retrieval in which each pair of image and text is read together. There is no decoder, and no
released code: docs/fidelity.md lists what the paper leaves open.

    position   0     1   2   3  ...  n      P    P  ...  P    P        (P = config.positions - 1, never a word's)
              [CLS]  w1  w2  w3 ... [SEP]   r1   r2 ...  rN  [whole]
    segment    0     0   0   0  ...  0      1    1  ...  1    1
    block     text                         regions

[SEP] is the last of `Sample.text`; the model adds [CLS]. A region is the sum of its feature, its box as five numbers,
its segment and a position that all regions share, then layer norm (section 4.1). [whole] is an additional region:
the feature of the whole image, by any backbone ("w global feature", Table 4).
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
from diptych.models.visual import WholeRegion, geometry, refuse_more_regions, region_features, whole_region
from diptych.runtime.configs import derive
from diptych.runtime.devices import to_device
from diptych.runtime.errors import DataError

WORDS, REGIONS = 0, 1  # segments


class ImageBertConfig(TextConfig):
    """ImageBERT's sizes, and the choices that the paper leaves open."""

    layers: Layers = 12
    """Transformer layers."""
    # "Each embedding is projected ..., followed by Layer Normalization" can be read of the sum, as in the formula
    # before it, or of each of the parts that are projected (feature and box) before their sum is normed too.
    region_norm: Literal["sum", "each"] = "sum"
    """Whether the sum of a region's embeddings is normed, or each of them too."""
    whole_region: WholeRegion = False
    """Whether the whole image's feature is one region more."""

    structural: ClassVar = frozenset({"region_norm"})
    segments: ClassVar = 2  # of words and of regions, as BERT's two
    reserved: ClassVar = 2  # [CLS], and the position of the regions

    def fitted(self, whole: bool) -> ImageBertConfig:
        return derive(self, whole_region=whole_region(self.whole_region, whole))

    @classmethod
    def tiny(cls, **changes: Any) -> ImageBertConfig:
        """A size that trains in minutes on one core."""
        return cls(**{**TINY, "layers": 3, "positions": 64, **changes})


class ImageBertResolvedConfig(ImageBertConfig, ResolvedConfig):
    """ImageBertConfig completed by the data: vocabulary, feature size, number of classes and answers."""


class ImageBert(SystemModel):
    """Words and regions in one encoder, without a decoder."""

    config: ImageBertResolvedConfig
    provides: frozenset[Capability] = frozenset({"regions", "text", "text after regions"})

    def __init__(self, config: ImageBertResolvedConfig, heads: Iterable[str] = ("word",)) -> None:
        super().__init__(config)
        self.text = TextEmbedding(config, config.segments)
        self.regions = LocatedRegionEmbedding(config)
        self.encoder = Transformer(LayerSizes.of(config), config.layers)
        sizes = HeadSizes.of(config, class_layers=1)  # "we add a fully-connected layer" (Task 2)
        self.heads = make_heads(heads, sizes, self.text.words)
        for module in self.modules():
            as_bert(module, config.init_std)
        self.keep_layers = False  # True: fill States.layers

    def forward(self, batch: Batch) -> States:
        words, text_present = self._words(batch)
        region_rows, present = self._regions(batch)
        regions, text = region_rows.shape[1], words.shape[1]
        # In the order of the attention table; where all attend to all, the order of the sequence does not matter.
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
        """The positions whose last states are requested; None: all."""
        blocks = {"regions": 0, "text": regions + 1}
        last = regions + batch.text_present.sum(1)
        special: dict[str, Tensor | int] = {"cls": regions, "sep": last, "slot": regions + 1 + answer_slot(batch)}
        return requested_mask(batch, self.heads, regions + text, blocks, special)

    def _words(self, batch: Batch) -> tuple[Float[Tensor, "B K D"], Bool[Tensor, "B K"]]:
        """Embeddings of [CLS] and the words after layer norm, and a mask without padding."""
        refuse_more_words(batch.text.shape[1], self.config.max_text)
        cls = batch.text.new_full((len(batch), 1), self.vocabulary.cls)
        words = torch.cat([cls, batch.text], 1)
        positions = torch.arange(words.shape[1], device=words.device)
        embedded = self.text(words, positions, torch.full_like(words, WORDS))
        cls_present = batch.text_present.new_ones(len(batch), 1)
        return self.text.finish(embedded), torch.cat([cls_present, batch.text_present], 1)

    def _regions(self, batch: Batch) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"]]:
        """Embeddings of regions (and, with whole_region, of the image) after layer norm, and a mask without padding."""
        refuse_more_regions(batch, self.config.max_regions)
        device = batch.boxes.device
        shared = self.text.segments(to_device(REGIONS, device)) + self.text.positions(
            to_device(self.config.positions - 1, device)
        )
        present = batch.regions_present
        if self.config.whole_region:
            present = torch.cat([present, present.new_ones(len(batch), 1)], 1)
        return self.regions(batch, shared), present


class LocatedRegionEmbedding(nn.Module):
    """Embed regions: e = LN(v + s + p_img + p_seq), section 4.1.

    v comes from the feature, p_img from the box as five numbers. A hidden region loses its feature ("zero out") and
    keeps its box, which shows the region that is to be predicted. The norm is not that of the words, which comes from
    BERT and fits sums of word vectors.
    """

    def __init__(self, config: ImageBertResolvedConfig) -> None:
        super().__init__()
        self.feature_size, self.whole_size = config.feature_size, config.whole_size or config.feature_size
        self.feature = nn.Linear(config.feature_size, config.width)
        self.place = nn.Linear(5, config.width)
        if config.whole_region:
            self.whole = nn.Linear(self.whole_size, config.width)
        self.each = config.region_norm == "each"
        if self.each:
            self.feature_norm = nn.LayerNorm(config.width, config.norm_eps)
            self.place_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.norm = nn.LayerNorm(config.width, config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, batch: Batch, shared: Float[Tensor, "D"]) -> Float[Tensor, "B P D"]:
        """Return the embeddings. `shared`: segment and position of all. P is R, or R + 1 with the image itself last."""
        features = region_features(batch, self.feature_size).masked_fill(batch.hidden[..., None], 0)
        embedded, boxes = self.feature(features), geometry(batch, "paper", "paper")
        if hasattr(self, "whole"):
            embedded = torch.cat([embedded, self.whole(self._whole(batch))[:, None]], 1)
            all_of_it = to_device([0.0, 0.0, 1.0, 1.0, 1.0], boxes.device)  # corners, and the share of the image's area
            boxes = torch.cat([boxes, all_of_it.expand(len(batch), 1, 5)], 1)
        places = self.place(boxes)
        if self.each:
            embedded, places = self.feature_norm(embedded), self.place_norm(places)
        normed: Tensor = self.dropout(self.norm(embedded + places + shared))
        return normed

    def _whole(self, batch: Batch) -> Float[Tensor, "B W"]:
        if batch.whole is None:
            raise DataError("the model reads a feature of the whole image; some images have none", key=batch.keys[0])
        if batch.whole.shape[-1] != self.whole_size:
            raise DataError(
                f"features of whole images have {batch.whole.shape[-1]} values, expected {self.whole_size}",
                key=batch.keys[0],
            )
        return batch.whole


def _last(text: Float[Tensor, "B K D"], present: Bool[Tensor, "B K"]) -> Float[Tensor, "B D"]:
    """The state of each text's [SEP]."""
    return text[torch.arange(len(text), device=text.device), present.sum(1) - 1]
