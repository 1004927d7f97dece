"""Unified VLP (Zhou et al., AAAI 2020, arXiv 1909.11059): one transformer for understanding and generation.

There is no decoder. The same weights answer questions (bidirectional attention mask) and generate captions (seq2seq
mask). The segment embeddings of a sample distinguish the two cases.

    position   0     none ...     N+1    N+2  ...                  (N = config.max_regions, however many there are)
              [CLS] r1 r2 ... rN [SEP]   w1  w2  w3 ... [STOP]     q1  q2  q3 ...
    segment    4 ----------------- 4      5 ---------------- 5      5 ---------- 5      seq2seq
               0 ----------------- 0      1 ---------------- 1                          bidirectional
    block      regions                   text                      target: queries, each at the position of its word

[STOP] is the token [SEP] at the end of `Sample.text`; the model adds the other special tokens. Instead of a position
embedding, a region has an embedding of its box and its class (Eq. 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor

from diptych.core import Batch, Capability, States, attention_mask
from diptych.core.attention import TEXT_AFTER_REGIONS, Attention
from diptych.core.shares import Epsilon, Layers, Source
from diptych.models.embeddings import TextEmbedding
from diptych.models.heads import HeadSizes, answer_slot, answer_slot_state, make_heads
from diptych.models.rows import requested_mask
from diptych.models.system import ModelConfig, ResolvedConfig, SystemModel, as_bert
from diptych.models.text import TINY, refuse_more_room, refuse_more_words
from diptych.models.transformer import DecoderCache, LayerSizes, Transformer
from diptych.models.visual import (
    RegionEmbedding,
    WholeRegion,
    whole_projection,
    whole_region,
    with_image_feature,
)
from diptych.runtime.configs import derive
from diptych.runtime.devices import to_device


class UnifiedVLPConfig(ModelConfig):
    """The config of Unified VLP.

    Where the paper and the released code differ, a field selects `paper` or `official` (docs/fidelity.md).
    """

    layers: Layers = 12
    """Transformer layers."""
    segments: Literal[6, 2] = 6
    """Number of segment embeddings; 2 for models trained without --new_segment_ids."""
    norm_eps: Epsilon = 1e-5
    """Epsilon of the layer norms, as in the code; BERT has 1e-12."""
    region_embedding: Source = "paper"
    """Region embedding as in the paper or in the code (docs/fidelity.md)."""
    fc7: bool = False
    """Whether region features first pass an additional layer like the detector's fc7. The code always has it."""
    box_norm: Source = "paper"
    """Normalisation of box coordinates as in the paper or in the code (docs/fidelity.md)."""
    geometry: Source = "paper"
    """Numbers that describe a box, as in the paper or in the code (docs/fidelity.md)."""
    whole_region: WholeRegion = False
    """Whether the whole image is read as an additional region."""
    class_input: bool = True
    """Whether the detector's class probabilities are part of the input (Table 6)."""
    # paper: a hidden region keeps its box, so that its class can be predicted (Table 6, "region label as pretext").
    # official: it keeps only its segment (the authors' --mask_image_regions). The authors' code also tries to
    # exclude hidden regions from attention, but changes only a copy of the mask (seq2seq_loader.py:305). So other
    # positions still attend to hidden regions, in the authors' code and here.
    hidden_regions: Source = "paper"
    """paper: a hidden region keeps its box; official: it keeps only its segment."""

    regions_fixed: ClassVar = True  # the text begins at position max_regions + 2, so this setting cannot change
    structural: ClassVar = frozenset({"region_embedding", "box_norm", "geometry", "class_input"})

    @model_validator(mode="after")
    def _fits(self) -> UnifiedVLPConfig:
        if self.max_text < 1:
            raise ValueError(
                f"positions={self.positions} leaves no position for words after {self.max_regions} regions; raise it"
            )
        return self

    @property
    def max_text(self) -> int:
        """Return the maximum number of words in a text, including its [SEP]."""
        return self.positions - self.max_regions - 2

    @property
    def reads_classes(self) -> bool:
        return self.class_input

    @property
    def begins_from_detector(self) -> bool:
        return self.fc7 or self.region_embedding == "official"

    def fitted(self, whole: bool) -> UnifiedVLPConfig:
        return derive(self, whole_region=whole_region(self.whole_region, whole))

    @classmethod
    def tiny(cls, **changes: Any) -> UnifiedVLPConfig:
        """Return a small config that trains in a minute on one CPU core."""
        return cls(**{**TINY, "layers": 3, "positions": 96, **changes})


class UnifiedVLPResolvedConfig(UnifiedVLPConfig, ResolvedConfig):
    """UnifiedVLPConfig with values that depend on the data: vocabulary, feature size, number of classes and answers."""


class UnifiedVLP(SystemModel):
    """The Unified VLP model: one encoder.

    Its attention mask is bidirectional, or causal to generate text after the regions.
    """

    config: UnifiedVLPResolvedConfig
    provides: frozenset[Capability] = frozenset(
        {"regions", "text", "text after regions", "target", "target after text", "queries", "decode"}
    )

    def __init__(self, config: UnifiedVLPResolvedConfig, heads: Iterable[str] = ("word",)) -> None:
        super().__init__(config)
        self.text = TextEmbedding(config, config.segments)
        self.encoder = Transformer(LayerSizes.of(config), config.layers)
        self.heads = make_heads(heads, HeadSizes.of(config), self.text.words)
        for module in self.modules():
            as_bert(module, config.init_std)
        # The layers are created after `as_bert`, because in the authors' code the region layers keep torch's initial
        # weights.
        self.regions = RegionEmbedding(
            width=config.width,
            feature_size=config.feature_size,
            classes=config.classes if config.class_input else 0,
            form=config.region_embedding,
            box_norm=config.box_norm,
            geometry_form=config.geometry,
            dropout=config.dropout,
            norm_eps=config.norm_eps,
            fc7=config.fc7,
        )
        self.whole = whole_projection(config.feature_size, config.whole_size) if config.whole_region else None
        self.keep_layers = False  # True: also return the states of all layers in States.layers
        self.provides = self.provided(config)

    @classmethod
    def provided(cls, shape: UnifiedVLPConfig) -> frozenset[Capability]:
        """Return what a model with this config provides for objectives.

        `States.embedded` keeps the embeddings of hidden regions only with hidden_regions=official.
        """
        hides: frozenset[Capability] = frozenset({"hidden embeddings"} if shape.hidden_regions == "official" else ())
        return cls.provides | hides

    def forward(self, batch: Batch) -> States:
        read, present, embedded = self._embed_regions(batch)
        segments = self._segments(batch.attention)
        blocks, text = [read], batch.text.shape[1]
        if text:
            blocks.append(self._embed_text(batch.text, 0, segments[:, 1:]))
            present = torch.cat([present, batch.text_present], 1)
        if batch.target is not None and batch.target_present is not None:
            blocks.append(self._embed_text(batch.target, batch.target_start or 0, segments[:, 1:]))
            present = torch.cat([present, batch.target_present], 1)
        sizes = [block.shape[1] for block in blocks]
        target = sum(sizes[1:]) - text
        allowed = attention_mask(batch.attention, sizes[0], text, target, present)
        x = self.text.finish(torch.cat(blocks, 1))
        layers = self.encoder(x, allowed) if self.keep_layers else []
        last = layers[-1] if layers else self.encoder.last(x, allowed, present, self._requested(batch, sizes[0], x))
        of_regions, of_text, of_target = last.split([sizes[0], text, target], 1)
        return States(
            regions=of_regions[:, 1 : 1 + batch.boxes.shape[1]],
            text=of_text,
            target=of_target if target else None,
            special={"cls": of_regions[:, 0], "sep": of_regions[:, -1], **answer_slot_state(of_text, batch)},
            embedded=embedded,
            layers=tuple(layers),
        )

    def _requested(self, batch: Batch, regions: int, x: Float[Tensor, "B L D"]) -> Bool[Tensor, "B L"] | None:
        """Return a mask of the positions whose last states the heads need. None: all positions."""
        blocks = {"regions": 1, "text": regions, "target": regions + batch.text.shape[1]}
        special: dict[str, Tensor | int] = {"cls": 0, "sep": regions - 1}
        if batch.text.shape[1] > 1:
            special["slot"] = regions + answer_slot(batch)
        return requested_mask(batch, self.heads, x.shape[1], blocks, special)

    def begin(self, batch: Batch, room: int) -> tuple[Float[Tensor, "B V"], DecoderCache]:
        """Read the regions once.

        Return the scores of each caption's first word, and a cache with room for `room` words.

        The text of the batch is ignored. Raises RecipeError if the model has fewer than `room` positions for words.
        """
        refuse_more_room(room, self.config)
        attention, count = [TEXT_AFTER_REGIONS], batch.boxes.shape[0]
        read, present, _ = self._embed_regions(batch, attention)
        masks = torch.full((count, 1), self.vocabulary.mask, device=batch.boxes.device)
        mask = self._embed_text(masks, 0, self._segments(attention)[:, 1:].expand(count, 1))
        present = torch.cat([present, present.new_ones(count, 1)], 1)
        allowed = attention_mask(attention, read.shape[1], 1, 0, present)
        state, memory = self.encoder.read(self.text.finish(torch.cat([read, mask], 1)), allowed, room)
        scores: Tensor = self.heads["word"](state)
        return scores, memory

    def follow(
        self, memory: DecoderCache, words: Int[Tensor, "B K"], parents: Int[Tensor, "B K"]
    ) -> Float[Tensor, "B K V"]:
        """Continue beam `parents[b, k]` of sample b with `words[b, k]`, as the new beam k.

        Return the scores of each beam's next word.
        """
        memory.take(parents)
        rows = torch.stack([words, torch.full_like(words, self.config.vocabulary.mask)], -1).flatten(0, 1)
        segments = self._segments([TEXT_AFTER_REGIONS]).expand(rows.shape[0], 2)[:, 1:]
        x = self.text.finish(self._embed_text(rows, memory.written, segments))
        scores: Tensor = self.heads["word"](self.encoder.write(x, memory))
        return scores.view(*words.shape, -1)

    def _embed_regions(
        self, batch: Batch, attention: list[Attention] | None = None
    ) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"], dict[str, Tensor]]:
        """Return the embeddings of [CLS], regions and [SEP] before layer norm, and a mask that is False for padding.

        Also return the two terms of the region embeddings, from features and from boxes.
        """
        count, device = batch.boxes.shape[1], batch.boxes.device
        self.refuse_more_regions(batch)
        if self.config.whole_region:
            batch = with_image_feature(batch, self.whole)
        official = self.config.hidden_regions == "official"
        features, places = self.regions(batch, torch.zeros_like(batch.hidden) if official else batch.hidden)
        regions = features + places
        if official:
            regions = regions * ~batch.hidden[..., None]
        of_block = self._segments(batch.attention if attention is None else attention)[:, :1]
        segments = of_block.expand(batch.boxes.shape[0], 1)
        regions = regions + self.text.segments(segments)
        positions = to_device([0, self.config.max_regions + 1], device)
        words = to_device([self.config.vocabulary.cls, self.config.vocabulary.sep], device)
        special = self.text(words.expand(batch.boxes.shape[0], 2), positions, segments.expand(-1, 2))
        one = batch.regions_present.new_ones(batch.boxes.shape[0], 1)
        read = torch.cat([special[:, :1], regions, special[:, 1:]], 1)
        embedded = {"regions": features[:, :count], "places": places[:, :count]}
        return read, torch.cat([one, batch.regions_present, one], 1), embedded

    def _embed_text(
        self, words: Int[Tensor, "N T"], start: int | list[int], segments: Int[Tensor, "N 1"]
    ) -> Float[Tensor, "N T D"]:
        """Return embeddings of words or queries before layer norm.

        `start`: position of the first word in the text, one for all rows or one per row.
        """
        refuse_more_words(words.shape[1] + (0 if isinstance(start, list) else start), self.config.max_text)
        first = self.config.max_regions + 2
        places = torch.arange(words.shape[1], device=words.device)
        # The positions of padding after a fragment may exceed the last position, so they are clamped.
        if isinstance(start, list):
            own = to_device(start, words.device)[:, None]
            positions = first + (own + places).clamp(max=self.config.max_text - 1)
        else:
            positions = first + start + places
        embedded: Tensor = self.text(words, positions, segments.expand(-1, words.shape[1]))
        return embedded

    def _segments(self, attention: list[Attention]) -> Int[Tensor, "B 2"]:
        """Return the segment ids of regions and text of each sample: 4 and 5 for seq2seq, 0 and 1 for bidirectional."""
        seq2seq = self.config.segments == 6
        pairs = [(4, 5) if seq2seq and table.text[1] == "past" else (0, 1) for table in attention]
        return to_device(pairs, self.text.words.weight.device)
