"""VL-BERT (Su et al., ICLR 2020, arXiv 1908.08530). "v1" is the first version of the arXiv paper.

Every position has a visual feature. A region has its own feature. A word has the feature of the whole image, or in VCR
the feature of the region that it names. So words carry visual information before the first attention layer. Regions
have no order and share one position.

    block      text                                  regions
              [CLS] w1 w2 [SEP] v1 v2 [SEP]          r0 r1 ... rR           [END]

    token     its word                               [IMG]                   a vector of its own
    visual    of r0, or of the region it names       its own, or hidden      of r0

    segment    A ----------- A   B ------ B           C ------------------------- C
    position   0  1  2  ...                T          T+1 (all the same)     T+2

r0 is the whole image. Its feature is the mean feature of the regions that are not hidden, or a feature from the store
(setting `whole`). The [SEP] tokens are in `Sample.text`; the model adds the other special tokens. A text without
regions is a chunk of a text corpus. It has no [CLS] and no r0, and its visual feature is a learned vector.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from diptych.core import IGNORE, Batch, Capability, States, attention_mask
from diptych.core.shares import Layers, Size, Source
from diptych.models.dropout import Dropout
from diptych.models.embeddings import TextEmbedding
from diptych.models.heads import HeadSizes, PooledMatchHead, answer_slot, answer_slot_state, make_heads
from diptych.models.rows import Rows, requested_mask
from diptych.models.system import ResolvedConfig, SystemModel, as_bert
from diptych.models.text import TINY, TextConfig, refuse_more_words
from diptych.models.transformer import LayerSizes, Transformer
from diptych.models.visual import region_features, whole_feature, whole_projection
from diptych.runtime.configs import derive
from diptych.runtime.devices import to_device
from diptych.runtime.errors import DataError
from diptych.systems.vl_bert.network import CELLS, FastRCNN, Network, Stride

REGIONS = 2  # segment id of regions; the paper calls it C
SCALE, LONGEST = 100, 1000  # coordinates are multiplied by SCALE; the longest sine wave has the wavelength LONGEST
TOGETHER = 64  # number of positions that text and regions share if region_budget=official


class VLBertConfig(TextConfig):
    """The config of VL-BERT.

    Where the paper and the released code differ, a field selects `paper` or `official` (docs/fidelity.md).
    """

    layers: Layers = 12
    """Transformer layers."""
    answer_slot: bool = True
    """Whether a question ends with a [MASK], at which its answer is read."""
    coordinates: Size = 256
    """Number of sines, and of cosines, that encode each of a box's four numbers."""
    geometry: Source = "paper"
    """paper: corners of a box; official: its centre and size."""
    whole: Literal["mean", "given"] = "mean"
    """Feature of the whole image. mean: mean of the regions that are not hidden; given: stored feature."""
    visual_norm_init: Source = "paper"
    """Initial weight of the visual layer norms. paper: 1; official: 0, so that the model starts equal to BERT."""
    hidden_regions: Source = "paper"
    """paper: a hidden region is only a learnt vector; official: a learnt token embedding, and the region's box."""
    end_visual: Source = "paper"
    """paper: [END] has the visual feature of the whole image, like words; official: it has none."""
    region_budget: Source = "paper"
    """paper: at most max_regions regions; official: 64 positions for text and regions together."""
    network: Network | None = None
    """Network that computes region features from pixels and is trained too; null: features are read from the store."""
    network_frozen: Annotated[int, Field(ge=0, le=4)] = 2
    """Number of frozen parts of the network, counted from its stem: stem, stages 1 to 3."""
    network_norms_frozen: bool = True
    """Whether the scales and offsets of the network's batch norms are frozen; their statistics always are."""
    network_cells: Annotated[int, Field(ge=1, le=CELLS)] = CELLS
    """Number of RoIAlign's cells per box and axis."""
    network_stride: Stride = "1x1"
    """The convolution of a bottleneck that has the stride of its stage: 1x1, or 3x3 for torchvision's weights."""

    structural: ClassVar = frozenset({"geometry", "hidden_regions", "end_visual"})
    of_the_run: ClassVar = frozenset({"region_budget"})
    reserved: ClassVar = 3  # one position for [CLS], one that all regions share, and one for [END]

    def fitted(self, whole: bool) -> VLBertConfig:
        return self if whole else derive(self, whole="mean")

    def most_regions(self, words: int) -> int:
        """Return the maximum number of regions that the model reads together with a text of `words` words.

        With region_budget=official, text and regions share 64 positions, of which at least 30 are for regions.
        """
        if self.region_budget == "paper":
            return self.max_regions
        return min(self.max_regions, max(TOGETHER - 2 - words, TOGETHER // 2 - 2))

    @property
    def reads_pixels(self) -> bool:
        return self.network is not None

    @property
    def frozen_stages(self) -> int:
        return self.network_frozen if self.reads_pixels else 0

    @property
    def max_beside(self) -> int:
        return self.max_text if self.region_budget == "paper" else min(self.max_text, TOGETHER // 2)

    @classmethod
    def large(cls, **changes: Any) -> VLBertConfig:
        """Return the large size, which is only in the ICLR version of the paper."""
        return cls(**{"width": 1024, "layers": 24, "heads": 16, "ffn": 4096, **changes})

    @classmethod
    def tiny(cls, **changes: Any) -> VLBertConfig:
        """Return a small config that trains in minutes on one CPU core."""
        return cls(**{**TINY, "layers": 3, "positions": 96, "coordinates": 16, **changes})


class VLBertResolvedConfig(VLBertConfig, ResolvedConfig):
    """VLBertConfig with values that depend on the data: vocabulary, feature size, numbers of classes and answers."""


class VLBert(SystemModel):
    """The VL-BERT model: one encoder for words and regions.

    A word has the feature of the region that it names, or of the whole image.
    """

    config: VLBertResolvedConfig
    provides: frozenset[Capability] = frozenset({"regions", "text", "text after regions", "alone"})
    answers_exported = True

    def __init__(self, config: VLBertResolvedConfig, heads: Iterable[str] = ("word",)) -> None:
        super().__init__(config)
        self.provides = self.provided(config)
        self.text = TextEmbedding(config, 3)
        # Embeddings with one row each: [IMG], a hidden region (official: its token), [END], the visual feature of a
        # text without an image.
        self.image, self.hidden, self.end, self.alone = (nn.Embedding(1, config.width) for _ in range(4))
        self.regions = VisualFeatures(config)
        self.word_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.region_norm = nn.LayerNorm(config.width, config.norm_eps)
        self.encoder = Transformer(LayerSizes.of(config), config.layers)
        sizes = HeadSizes.of(config, class_norm=False, dropout=config.dropout)
        own = {
            "match": lambda: PooledMatchHead(sizes),
            "seen_class": lambda: nn.Linear(self.regions.size, config.classes),
        }
        self.heads = make_heads(heads, sizes, self.text.words, own)
        for module in self.modules():
            as_bert(module, config.init_std)
        if self.regions.hidden is not None:
            nn.init.zeros_(self.regions.hidden)
        if config.visual_norm_init == "official":
            nn.init.zeros_(self.word_norm.weight)
            nn.init.zeros_(self.region_norm.weight)
        self.keep_layers = False  # True: also return the states of all layers in States.layers

    @classmethod
    def provided(cls, shape: VLBertConfig) -> frozenset[Capability]:
        of_pixels: frozenset[Capability] = frozenset({"pixels"} if shape.reads_pixels else ())
        return cls.provides | of_pixels

    def forward(self, batch: Batch) -> States:
        pictured = batch.regions_present.any(1)
        visible = torch.cat([pictured[:, None], batch.regions_present], 1)
        batch = replace(batch, regions_present=batch.regions_present & self._within_budget(batch))
        features = self.regions.features(batch)
        visual = self.regions(batch, features, visible)
        # Positions of the text: [CLS] and words, (B, 1 + T).
        cls = batch.text.new_full((batch.text.shape[0], 1), self.config.vocabulary.cls)
        words = torch.cat([cls, batch.text], 1)
        text_present = torch.cat([pictured[:, None], batch.text_present], 1)
        # Positions of the image: r0 (the whole image), regions and [END], (B, 2 + R).
        present = torch.cat([pictured[:, None], batch.regions_present, torch.ones_like(pictured)[:, None]], 1)
        # Regions come first, as in the attention mask. All positions attend to all, so the order does not matter.
        x = torch.cat([self._regions(batch, visual, pictured), self._words(batch, words, visual, pictured)], 1)
        all_present = torch.cat([present, text_present], 1)
        allowed = attention_mask(batch.attention, present.shape[1], words.shape[1], 0, all_present)
        x = self.text.finish(x)
        layers = self.encoder(x, allowed) if self.keep_layers else []
        last = (
            layers[-1]
            if layers
            else self.encoder.last(x, allowed, all_present, self._requested(batch, present.shape[1], x))
        )
        of_regions, of_text = last.split([present.shape[1], words.shape[1]], 1)
        return States(
            regions=of_regions[:, 1:-1],
            text=of_text[:, 1:],
            special={
                "cls": of_text[:, 0],
                "sep": of_text[torch.arange(x.shape[0], device=x.device), batch.text_present.sum(1)],
                "whole": of_regions[:, 0],
                "end": of_regions[:, -1],
                **answer_slot_state(of_text[:, 1:], batch),
            },
            embedded={"regions": visual[:, 1:], "image": visual[:, :1], "features": features[:, 1:]},
            layers=tuple(layers),
        )

    def _requested(self, batch: Batch, regions: int, x: Float[Tensor, "B L D"]) -> Bool[Tensor, "B L"] | None:
        """Return a mask of the positions whose last states the heads need. None: all positions."""
        blocks = {"regions": 1, "text": regions + 1}
        special: dict[str, Tensor | int] = {
            "cls": regions,
            "sep": regions + batch.text_present.sum(1),
            "slot": regions + 1 + answer_slot(batch),
            "whole": 0,
            "end": regions - 1,
        }
        return requested_mask(batch, self.heads, x.shape[1], blocks, special)

    def _words(
        self, batch: Batch, words: Int[Tensor, "B K"], visual: Float[Tensor, "B P D"], pictured: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B K D"]:
        """Return the embeddings of [CLS] and the words, with their visual features.

        `pictured`: True for samples with an image.
        """
        refuse_more_words(batch.text.shape[1], self.config.max_text)
        whole = visual[:, :1].expand(-1, words.shape[1], -1)
        if batch.text_regions is not None:
            named = torch.cat([batch.text_regions.new_full((len(batch), 1), IGNORE), batch.text_regions], 1)
            whole = visual.gather(1, (named + 1).clamp(min=0)[..., None].expand(-1, -1, visual.shape[-1]))
        of_words = torch.where(pictured[:, None, None], whole, self.alone.weight)
        # Text without an image has no [CLS], so its first word has position 0.
        positions = torch.arange(words.shape[1], device=words.device) - (~pictured)[:, None].long()
        ends = (batch.text == self.config.vocabulary.sep).long()
        second = torch.cat([torch.zeros_like(ends[:, :1]), (ends.cumsum(1) - ends > 0).long()], 1)
        embedded: Tensor = self.text(words, positions.clamp(min=0), second * pictured[:, None])
        visual_part: Tensor = self.word_norm(of_words)
        return embedded + visual_part

    def _regions(
        self, batch: Batch, visual: Float[Tensor, "B P D"], pictured: Bool[Tensor, "B"]
    ) -> Float[Tensor, "B Q D"]:
        """Return the embeddings of r0, the regions and [END]. `pictured`: True for samples with an image."""
        self.refuse_more_regions(batch)
        hidden = torch.cat([torch.zeros_like(pictured)[:, None], batch.hidden], 1)[..., None]
        if self.config.hidden_regions == "paper":
            tokens = self.image.weight + self.region_norm(torch.where(hidden, self.hidden.weight, visual))
        else:
            tokens = torch.where(hidden, self.hidden.weight, self.image.weight) + self.region_norm(visual)
        after_text = (batch.text_present.sum(1) + pictured)[:, None]
        place = self.text.positions(after_text) + self.text.segments.weight[REGIONS]
        end: Tensor = self.end.weight + self.text.positions(after_text + 1) + self.text.segments.weight[REGIONS]
        if self.config.end_visual == "paper":
            end = end + self.word_norm(torch.where(pictured[:, None, None], visual[:, :1], self.alone.weight))
        return torch.cat([tokens + place, end], 1)

    def _within_budget(self, batch: Batch) -> Bool[Tensor, "B R"]:
        """Return a mask of the regions that are read.

        With region_budget=official, text and regions share 64 positions. So only the first regions that fit are read.
        """
        if self.config.region_budget == "paper":
            return torch.ones_like(batch.regions_present)
        words = [
            count if regions else -2  # -2: a text without regions may use all positions
            for count, regions in zip(batch.counted_words(), batch.counted_regions(), strict=True)
        ]
        if max(words) > TOGETHER // 2:
            raise DataError(
                f"a text has {max(words)} words, but region_budget=official has {TOGETHER} positions, half of them for "
                "regions; lower data.max_words, or set model.region_budget=paper",
                key=batch.keys[words.index(max(words))],
            )
        left = to_device([TOGETHER - 2 - count for count in words], batch.boxes.device)
        return torch.arange(batch.boxes.shape[1], device=left.device) < left[:, None]


class VisualFeatures(nn.Module):
    """Visual feature embeddings (section 3.2): a linear layer on the feature and the box of each region.

    The whole image is the first region.
    """

    def __init__(self, config: VLBertResolvedConfig) -> None:
        super().__init__()
        self.config = config
        sizes = (config.network_frozen, config.network_cells, config.network_stride, config.network_norms_frozen)
        self.network = None if config.network is None else FastRCNN(config.network, *sizes)
        self.size = config.feature_size if self.network is None else self.network.size
        # The feature of a hidden region that keeps its box. A model that reads pixels uses the feature of blank pixels
        # instead.
        keeps_place = self.network is None and config.hidden_regions == "official"
        self.hidden = nn.Parameter(torch.zeros(self.size)) if keeps_place else None
        stored = self.network is None and config.whole == "given"
        self.whole = whole_projection(self.size, config.whole_size) if stored else None
        self.dropout = Dropout(config.dropout)
        self.out = nn.Linear(8 * config.coordinates + self.size, config.width)

    def features(self, batch: Batch) -> Float[Tensor, "B P F"]:
        """Return the features, from the store or from pixels. P = 1 + R, because the whole image is first."""
        return self._stored(batch) if self.network is None else self._from_pixels(batch, self.network)

    def forward(
        self, batch: Batch, features: Float[Tensor, "B P F"], present: Bool[Tensor, "B P"]
    ) -> Float[Tensor, "B P D"]:
        """Return the embeddings of the features. They are zero, and not computed, where `present` is False."""
        rows = Rows.worth(present)
        places = sines(rows.take(self._places(batch)), self.config.coordinates)
        both = torch.cat([places.to(features), rows.take(features)], -1)
        return rows.put(torch.relu(self.out(self.dropout(both))))

    def _stored(self, batch: Batch) -> Float[Tensor, "B P F"]:
        features = region_features(batch, self.config.feature_size)
        whole = self._whole(batch, features)
        if self.hidden is not None:
            features = torch.where(batch.hidden[..., None], self.hidden, features)
        return torch.cat([whole[:, None], features], 1)

    def _from_pixels(self, batch: Batch, network: FastRCNN) -> Float[Tensor, "B P F"]:
        """Return features computed from pixels. `Regions.hide` has made the pixels of hidden regions blank."""
        pictured = batch.regions_present.any(1)
        present = torch.cat([pictured[:, None], batch.regions_present], 1)
        if not batch.boxes.shape[1]:
            return batch.boxes.new_zeros(*present.shape, network.size)
        if batch.pixels is None or batch.pixel_sizes is None:
            raise DataError(
                f"model.network={self.config.network} reads pixels, but some images lack them; pass the image files",
                key=batch.keys[int(pictured.long().argmax())],
            )
        sizes = batch.pixel_sizes.to(batch.boxes)[:, [0, 1, 0, 1]][:, None]
        # A box includes its last pixel, so the whole image ends at size - 1.
        whole = (sizes - 1) * to_device([0.0, 0.0, 1.0, 1.0], sizes.device)
        visual: Tensor = network(batch.pixels, torch.cat([whole, batch.boxes * sizes], 1), present, self._masks(batch))
        return visual

    def _masks(self, batch: Batch) -> Float[Tensor, "B P m m"] | None:
        """Return the instance masks: for each box, the cells that show the object.

        The whole image has a mask of all cells.
        """
        if batch.masks is None:
            return None
        if batch.masks.shape[-2:] != (CELLS, CELLS):
            raise DataError(
                f"instance masks have {batch.masks.shape[-2]} x {batch.masks.shape[-1]} cells, expected {CELLS} x "
                f"{CELLS}; extract them again, or leave them out",
                key=batch.keys[0],
            )
        return torch.cat([torch.ones_like(batch.masks[:, :1]), batch.masks], 1)

    def _whole(self, batch: Batch, features: Float[Tensor, "B R F"]) -> Float[Tensor, "B F"]:
        if self.config.whole == "given" and batch.whole is not None:
            return whole_feature(batch, self.whole)
        if self.config.whole == "given" and batch.boxes.shape[1]:
            raise DataError("the store has no feature of the whole image; set model.whole=mean", key=batch.keys[0])
        visible = (batch.regions_present & ~batch.hidden)[..., None].to(features)
        mean: Tensor = (features * visible).sum(1) / visible.sum(1).clamp(min=1)
        return mean

    def _places(self, batch: Batch) -> Float[Tensor, "B P 4"]:
        """Return the boxes of the whole image and of each region, times 100.

        geometry=paper: corners; official: centre and size.
        """
        whole = to_device([0.0, 0.0, 1.0, 1.0], batch.boxes.device).expand(batch.boxes.shape[0], 1, 4)
        if self.config.geometry == "paper":
            return SCALE * torch.cat([whole, batch.boxes], 1)
        pixels = batch.sizes if batch.pixel_sizes is None else batch.pixel_sizes
        sizes = pixels.to(batch.boxes)[:, [0, 1, 0, 1]][:, None]
        # A box includes its last pixel, so the whole image ends at size - 1.
        whole = whole - to_device([0.0, 0.0, 1.0, 1.0], sizes.device) / sizes
        boxes = torch.cat([whole, batch.boxes], 1)
        low, high = boxes[..., :2], boxes[..., 2:]
        return SCALE * torch.cat([(low + high) / 2, high - low], -1)


def sines(numbers: Float[Tensor, "*P n"], count: int) -> Float[Tensor, "*P m"]:
    """Return `count` sines and then `count` cosines of each number.

    Their wavelengths increase up to 1,000 (Relation Networks).
    """
    waves = LONGEST ** (torch.arange(count, device=numbers.device, dtype=torch.float32) / count)
    angles = numbers.float()[..., None] / waves
    return torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)
