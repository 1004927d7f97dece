"""XGPT (Xia, Huang, Duan et al. 2020, arXiv 2003.01473): an encoder and a decoder that share their weights.

All pre-training tasks are generation tasks. Encoder and decoder are the same layers: the same attention weights attend
to the decoder's states and to the encoder's. A signal distinguishes the two. The authors released no code;
docs/fidelity.md lists our choices.

    block      regions          text                         target
               r1 r2 ... rR     w1 w2 ... wT [SEP]           [CLS] w1 w2 ... wT        predicts w1 w2 ... wT [SEP]

    position   in the box       0  1                         s     s+1                 (s: first position of a fragment)

    captions   read             -                            past
    IMLM       read             w1 [MASK] [MASK] w4 [SEP]    [CLS] w2                  predicts w2 w3
    IDA        read             [MASK] w4 [SEP], each as     [CLS] w1 w2 w3 w4         predicts w1 w2 w3 w4 [SEP]
                                the regions it attends to

    TIFG       not read         w1 w2 ... wT [SEP]           q1 q2 ... qR              predicts features of r1 ... rR
               |------ encoder ------|----------------------------> decoder

[SEP] is the last token of `Sample.text`, and [CLS] the first of `Sample.target`; the model adds no special tokens. The
config selects one of the three structures of Table 3, and the number of refining layers. It also sets whether words
attend first to words and then to the encoder, or to both in one softmax.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from diptych.core import BIDIRECTIONAL, REGIONS_AFTER_TEXT, TARGET_AFTER_BOTH, Batch, Capability, States, attention_mask
from diptych.core.shares import Layers, MaybeLayers, Size
from diptych.models.decoder import DecoderLayer, SharedLayer, Signal, causal, closed_of, run_decoder
from diptych.models.heads import HeadSizes, answer_slot, answer_slot_state, make_heads
from diptych.models.rows import requested_mask
from diptych.models.system import ResolvedConfig, as_bert
from diptych.models.text import TINY, DecoderModel, TextConfig, refuse_more_room, refuse_more_words
from diptych.models.transformer import DecoderCache, Layer, LayerCache, LayerSizes, closing, run_last
from diptych.runtime.devices import to_device
from diptych.runtime.errors import RecipeError
from diptych.systems.xgpt.layers import Grounding, RefiningLayer, RegionProjection, WordEmbedding

Structure = Literal["enc", "encdec", "encdec-share"]
KNOWN = (BIDIRECTIONAL, TARGET_AFTER_BOTH, REGIONS_AFTER_TEXT)


class XgptConfig(TextConfig):
    """The config of XGPT: its sizes, and the structures of Table 3."""

    heads: Size = 8
    """Attention heads."""
    layers: Layers = 12
    """Number of encoder layers, and of decoder layers."""
    structure: Structure = "encdec-share"
    """Only an encoder, encoder and decoder, or both with shared weights (Table 3)."""
    cross: Literal["after", "joint"] = "after"
    """Attention of words in encdec-share. after: to words, then to the encoder; joint: to both in one softmax."""
    signal: Signal = "flag"
    """How encdec-share marks the encoder's keys and values. flag: by separate arguments; learnt: by learnt vectors."""
    refining_layers: MaybeLayers = 1
    """Layers of attention on attention over the regions (A.1); 0: none."""
    positions: Size = 60
    """Number of positions of the sequence; the paper cuts texts to 60 (A.2)."""
    answer_slot: bool = True
    """Whether a question ends with a [MASK], at which its answer is read."""

    needs_regions: ClassVar = True
    regions_fixed: ClassVar = True  # each region has a learned query, so their number cannot change
    structural: ClassVar = frozenset({"structure", "cross", "signal"})
    reserved: ClassVar = 0
    fewest: ClassVar = 3  # the shortest text has a word, [MASK] and [SEP]

    @model_validator(mode="after")
    def _fits(self) -> XgptConfig:
        if self.cross == "joint" and self.structure != "encdec-share":
            raise ValueError(
                f"cross=joint needs structure=encdec-share, but structure={self.structure}; change one of them"
            )
        return self

    @classmethod
    def tiny(cls, **changes: Any) -> XgptConfig:
        """Return the paper's size "Tiny": 6 layers, with the width of the base size."""
        return cls(**{"layers": 6, **changes})

    @classmethod
    def small(cls, **changes: Any) -> XgptConfig:
        """Return a small config that trains in minutes on one CPU core."""
        return cls(**{**TINY, "layers": 3, "positions": 64, "signal": "learnt", **changes})


class XgptResolvedConfig(XgptConfig, ResolvedConfig):
    """XgptConfig with values that depend on the data: vocabulary, feature size, numbers of classes and answers."""


class Xgpt(DecoderModel):
    """The XGPT model: an encoder of regions and text, and a decoder, with shared or separate weights."""

    config: XgptResolvedConfig
    provides: frozenset[Capability] = frozenset(
        {
            *("regions", "region queries", "text", "text after regions", "alone", "grounded"),
            *("target", "target after text", "decode"),
        }
    )

    def __init__(self, config: XgptResolvedConfig, heads: Iterable[str] = ("word",)) -> None:
        super().__init__(config)
        names = set(heads)
        if "answer" in names and not config.answer_slot:
            raise RecipeError("XGPT predicts an answer only at a [MASK]: set model.answer_slot=true")
        sizes = LayerSizes.of(config)
        self.text = WordEmbedding(config.vocabulary.size, config.positions, sizes)
        self.regions = RegionProjection(config.feature_size, sizes)
        self.refining = nn.ModuleList(RefiningLayer(sizes) for _ in range(config.refining_layers))
        self.grounding = Grounding(config.width)
        self.queries = nn.Embedding(config.max_regions, config.width)
        shared = config.structure == "encdec-share"
        self.encoder = nn.ModuleList(
            SharedLayer(sizes, config.cross, config.signal) if shared else Layer(sizes) for _ in range(config.layers)
        )
        own = config.layers if config.structure == "encdec" else 0
        self.own_decoder = nn.ModuleList(DecoderLayer(sizes) for _ in range(own))
        self.heads = make_heads(names, HeadSizes.of(config), self.text.words)
        for module in self.modules():
            as_bert(module, config.init_std)
            if isinstance(module, SharedLayer) and module.signal is not None:
                nn.init.normal_(module.signal, std=config.init_std)

    @property
    def decoder(self) -> nn.ModuleList:
        """Return the layers of the decoder. They are the encoder's layers, except with structure=encdec."""
        return self.own_decoder if self.config.structure == "encdec" else self.encoder

    # ---- encoding of regions and text ----------------------------------------------------------------

    def forward(self, batch: Batch) -> States:
        x, present, regions = self._embed(batch)
        tables, text = batch.attention, batch.text.shape[1]
        target: Tensor | None
        if batch.target is not None and self.config.structure == "enc":
            states, target = self._in_one(batch, x, present, regions)
        else:
            closed = closing(~attention_mask(tables, regions, text, 0, present)[:, None], x)
            # With a target, the decoder attends to all states of the encoder, so all are computed.
            requested = self._requested(batch, x, regions) if batch.target is None else None
            for layer in self.encoder[:-1]:
                x = layer(x, closed)
            states = run_last(self.encoder[-1], x, closed, requested=requested)
            target = self._write(batch, states, present)
        of_regions, sentence = states[:, : batch.boxes.shape[1]], states[:, regions:]
        if not regions:  # the batch generates regions, so the encoder has not read any
            of_regions = x.new_zeros(*batch.boxes.shape[:2], x.shape[-1])
        special = answer_slot_state(sentence, batch)
        if text:  # the text has no [CLS], so its last [SEP] represents the pair
            last = (batch.text_present.sum(1) - 1).clamp(min=0)
            special["cls"] = sentence[torch.arange(len(sentence), device=sentence.device), last]
        return States(regions=of_regions, text=sentence, target=target, special=special)

    def _requested(self, batch: Batch, x: Float[Tensor, "B L D"], regions: int) -> Bool[Tensor, "B L"] | None:
        """Return a mask of the positions whose last states the heads need. None: all positions."""
        text = batch.text.shape[1]
        blocks = {"text": regions, "target": regions + text} | ({"regions": 0} if regions else {})
        last = regions + (batch.text_present.sum(1) - 1).clamp(min=0)
        special: dict[str, Tensor | int] = {"cls": last, "slot": regions + answer_slot(batch)} if text else {}
        return requested_mask(batch, self.heads, x.shape[1], blocks, special)

    def _embed(self, batch: Batch, with_text: bool = True) -> tuple[Float[Tensor, "B P D"], Bool[Tensor, "B P"], int]:
        """Return the embeddings of regions and text, a mask that is False for padding, and the number of regions."""
        self.refuse_more_regions(batch)
        words, text_present = batch.text, batch.text_present
        if not with_text:
            words, text_present = words[:, :0], text_present[:, :0]
        if self._text_alone(batch):
            return self._words(words), text_present, 0
        batch, present = _never_empty(batch, text_present, self.config.feature_size)
        x = self.regions(batch)
        for layer in self.refining:
            x = layer(x, present)
        if not words.shape[1]:
            return x, present, x.shape[1]
        text = self._words(words)
        if with_text and batch.grounded is not None and x.shape[1]:
            text = torch.where(batch.grounded[:, None, None], self.grounding(text, x, present), text)
        return torch.cat([x, text], 1), torch.cat([present, text_present], 1), x.shape[1]

    def _words(
        self, words: Int[Tensor, "B L"], start: int = 0, places: list[int] | None = None
    ) -> Float[Tensor, "B L D"]:
        """Embed words. The first word has the position `start`, or in row b the position `places[b]`."""
        end, most = start + words.shape[1], self.config.positions
        refuse_more_words(0 if places else end, most)
        positions = torch.arange(start, end, device=words.device)[None]
        # The positions of padding after a fragment may exceed the last position, so they are clamped.
        if places is not None:
            positions = (positions + to_device(places, words.device)[:, None]).clamp(max=most - 1)
        embedded: Tensor = self.text(words, positions)
        return embedded

    def _text_alone(self, batch: Batch) -> bool:
        """Return True if the batch predicts regions, which are then not read. Raises RecipeError for a mixed batch."""
        predicted = [table == REGIONS_AFTER_TEXT for table in batch.attention]
        if any(predicted) and not all(predicted):
            raise RecipeError("XGPT generates either words or regions in a batch; train these objectives in turn")
        return all(predicted)

    # ---- text generation -----------------------------------------------------------------------------

    def _target(self, batch: Batch) -> Float[Tensor, "B U D"]:
        assert batch.target is not None
        if strange := {table.name for table in batch.attention} - {table.name for table in KNOWN}:
            raise RecipeError(
                f"XGPT's decoder does not support the attention mask {strange.pop()!r}; use the objective generate_text"
            )
        if not self._text_alone(batch):
            return self._words(batch.target, places=batch.target_start)
        queries = self.queries.weight[None, : batch.target.shape[1]]
        return self.text.finish(queries.expand(len(batch), -1, -1))

    def _write(
        self, batch: Batch, encoded: Float[Tensor, "B P D"], present: Bool[Tensor, "B P"]
    ) -> Float[Tensor, "B U D"] | None:
        if batch.target is None:
            return None
        x = self._target(batch)
        past = causal(x.shape[1], x)
        requested = requested_mask(batch, self.heads, x.shape[1], {"target": 0}, {})
        return run_decoder(self.decoder, x, past, encoded, closed_of(present, x), requested=requested)

    def _in_one(
        self, batch: Batch, x: Float[Tensor, "B P D"], present: Bool[Tensor, "B P"], regions: int
    ) -> tuple[Tensor, Tensor]:
        """Run the structure `enc` of Table 3: a single stack of layers over regions, text and target.

        Words of the target attend to earlier words.
        """
        assert batch.target_present is not None
        target = self._target(batch)
        count, all_present = x.shape[1], torch.cat([present, batch.target_present], 1)
        allowed = attention_mask(batch.attention, regions, count - regions, target.shape[1], all_present)
        x, closed = torch.cat([x, target], 1), closing(~allowed[:, None], x)
        for layer in self.encoder[:-1]:
            x = layer(x, closed)
        x = run_last(self.encoder[-1], x, closed, requested=self._requested(batch, x, regions))
        return x[:, :count], x[:, count:]

    def begin(self, batch: Batch, room: int) -> tuple[Float[Tensor, "B V"], DecoderCache]:
        """Read the regions once.

        Return the scores of each caption's first word, and a cache with room for `room` words.

        Raises RecipeError if the model has fewer than `room` positions.
        """
        refuse_more_room(room, self.config)
        x, present, _ = self._embed(replace(batch, attention=[TARGET_AFTER_BOTH]), with_text=False)
        closed, pasts = closed_of(present, x), []
        for layer in self.encoder:
            assert isinstance(layer, Layer)
            if self.config.structure == "enc":
                pasts.append(LayerCache(layer.attention.keys_values(x)))
            # In structure `enc`, the output of the last layer is not needed.
            if self.config.structure != "enc" or layer is not self.encoder[-1]:
                x = layer(x, closed)
        if self.config.structure != "enc":
            pasts = [
                LayerCache(layer.look_up(x)) for layer in self.decoder if isinstance(layer, DecoderLayer | SharedLayer)
            ]
        return self.begin_writing(pasts, closed, room)

    def writing_layers(self) -> nn.ModuleList:
        return self.decoder

    def embed_next(self, words: Int[Tensor, "N 1"], place: int) -> Float[Tensor, "N 1 D"]:
        return self._words(words, place)


def _never_empty(
    batch: Batch, text_present: Bool[Tensor, "B T"], feature_size: int
) -> tuple[Batch, Bool[Tensor, "B R"]]:
    """Give samples without regions and words one region of zeros, because attention over only padding is undefined."""
    nothing = ~(batch.regions_present.any(1) | text_present.any(1))
    if not batch.boxes.shape[1]:
        if not (0 in batch.counted_words() if text_present.shape[1] else len(batch)):
            return batch, batch.regions_present
        one = {
            name: getattr(batch, name).new_zeros(len(batch), 1, *getattr(batch, name).shape[2:])
            for name in ("boxes", "scores", "regions_present", "chosen", "hidden")
        }
        batch = replace(batch, **one, features=batch.boxes.new_zeros(len(batch), 1, feature_size))
    present = batch.regions_present.clone()
    present[:, 0] |= nothing
    return batch, present
