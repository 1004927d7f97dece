"""TDEN (Li, Pan, Yao, Chen, Mei, AAAI 2021, arXiv 2101.11562): two encoders, then one to understand, one to write.

What is special: each modality has an encoder of its own, the cross-modal encoder understands and the cross-modal
decoder writes, so that neither task hampers the other (Fig. 2c). Words pass the same sentence layers on both ways:
seeing each other when they are read, seeing the past when they are written; the segment tells which.

    block      regions               text                         target
              [IMG] r1 r2 ... rR    [CLS] w1 w2 ... wT [SEP]     [CLS] w1 w2 ... wT          says w1 w2 ... wT [SEP]
    position   boxes                 0    1  2                    0    1  2
    segment                          0 -------------- 0           1 ------------ 1
                  |                     |                            |
            object encoder        sentence encoder             sentence encoder (the same layers, past alone)
                  |-------.  ISM  .-----|                            |
                  |    cross-modal encoder: MLM, MOC                 |
                  |--------------------------------------> cross-modal decoder: MSG

[IMG] is the mean of the visible regions' features over the whole picture. [SEP] is the last of `Sample.text`, [CLS] the
first of `Sample.target`; the model adds [CLS] to the text. Switches besides: Table 1's one stream, in which one stack
does all, and two streams, in which the cross-modal encoder also writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from diptych.core import Batch, Capability, States, Stream
from diptych.core.shares import Epsilon, MaybeLayers, Size, Source
from diptych.models.decoder import DecoderLayer, DecoderMemory, Past, causal, closed_of, run_decoder, write_word
from diptych.models.embeddings import TextEmbedding
from diptych.models.heads import HeadSizes, answer_slot, answer_slot_state, make_heads
from diptych.models.pooling import SimilarityHead
from diptych.models.rows import requested_mask
from diptych.models.system import ModelConfig, ResolvedConfig, SystemModel, as_bert
from diptych.models.transformer import Layer, LayerSizes
from diptych.models.visual import refuse_more_regions
from diptych.runtime.errors import DataError, RecipeError
from diptych.systems.tden.layers import (
    CrossModalLayer,
    ObjectEmbedding,
    OneAnswer,
    PairHead,
    ReadAnswer,
    TwoAnswers,
    after_each,
    closed_over,
    through,
)

Structure = Literal["decoupled", "two-stream", "single-stream"]
READ, WRITTEN = 0, 1  # segments


class TdenConfig(ModelConfig):
    """`paper` against `official` is the table of fidelity.md."""

    structure: Structure = "decoupled"
    """One stream, two streams, or two streams decoupled (Table 1)."""
    object_layers: MaybeLayers = 6
    """Layers of the object encoder."""
    sentence_layers: MaybeLayers = 12
    """Layers of the sentence encoder."""
    cross_layers: MaybeLayers = 6
    """Layers of the cross-modal encoder; 0: none."""
    decoder_layers: MaybeLayers = 6
    """Layers of the cross-modal decoder; 0: none."""
    segments: Size = 3
    """Segment embeddings: the code's; 0 and 1 are used."""
    embedding_norm_eps: Epsilon = 1e-5
    """Epsilon of the embeddings' layer norm."""
    decoder_memory: Source = "paper"
    """What the decoder reads: the object encoder, or (official) the cross-modal encoder where there is a text."""
    cross_ffn: Source = "paper"
    """paper: one feed-forward layer for both modalities; official: one each."""
    vqa_fusion: Source = "paper"
    """paper: one vector of encoder and decoder; official: two classifiers."""
    similarity: Source = "paper"
    """paper: the last object layer is pooled; official: every one, and the vectors are batch-normed."""
    similarity_width: Size = 1024
    """Width of the vectors that ISM compares."""
    answer_width: Size | None = None
    """Width of the pooled vectors that answers are predicted from; null: that of the states."""
    tied_words: bool = True
    """Whether the word head shares the word embeddings."""

    structural: ClassVar = frozenset(
        {"structure", "decoder_memory", "cross_ffn", "vqa_fusion", "similarity", "tied_words"}
    )

    @model_validator(mode="after")
    def _fits(self) -> TdenConfig:
        if self.positions < 3:
            raise ValueError(f"positions={self.positions} leaves no place for a word between [CLS] and [SEP]")
        unused = {
            "decoupled": (),
            "two-stream": ("decoder_layers",),
            "single-stream": ("object_layers", "sentence_layers", "decoder_layers"),
        }[self.structure]
        if there := [name for name in unused if getattr(self, name)]:
            raise ValueError(f"structure={self.structure} has no {' and no '.join(there)}; set 0")
        if self.structure != "decoupled" and not self.cross_layers:
            raise ValueError(
                f"structure={self.structure} reads and writes in the cross layers; cross_layers=0 leaves none"
            )
        return self

    @property
    def max_text(self) -> int:
        """How many words (and the [SEP] that ends them) there are positions for."""
        return self.positions - 1

    @classmethod
    def base(cls, **changes: Any) -> TdenConfig:
        """6, 12, 6 and 6 layers: the released code's, and ViLBERT's to which the paper points."""
        return cls(**{**_layers(6, 12, 6, 6, changes), **changes})

    @classmethod
    def tiny(cls, **changes: Any) -> TdenConfig:
        """Trains in minutes on one core."""
        small = {"width": 128, "heads": 4, "ffn": 512, "positions": 64, "max_regions": 32, "similarity_width": 128}
        return cls(**{**small, **_layers(1, 2, 2, 2, changes), "init_std": 0.05, **changes})


def _layers(objects: int, sentence: int, cross: int, decoder: int, changes: dict[str, Any]) -> dict[str, int]:
    """Layer counts of a structure; one stream gets as many as a word passes in the decoupled one."""
    match changes.get("structure", "decoupled"):
        case "single-stream":
            counts = (0, 0, sentence + cross, 0)
        case "two-stream":
            counts = (objects, sentence, cross, 0)
        case _:
            counts = (objects, sentence, cross, decoder)
    return dict(zip(("object_layers", "sentence_layers", "cross_layers", "decoder_layers"), counts, strict=True))


class TdenResolvedConfig(TdenConfig, ResolvedConfig):
    """The same with what the data decide: vocabulary, feature size, classes and answers."""


class Tden(SystemModel):
    """An object encoder and a sentence encoder; above them a cross-modal encoder and a decoder."""

    config: TdenResolvedConfig
    decodes = True

    def __init__(self, config: TdenResolvedConfig, heads: Iterable[str] = ("word",)) -> None:
        super().__init__(config)
        sizes = LayerSizes.of(config)
        self.text = TextEmbedding(config, config.segments, norm_eps=config.embedding_norm_eps)
        self.regions = ObjectEmbedding(config.feature_size, config.width, config.dropout, config.embedding_norm_eps)
        self.objects = nn.ModuleList(Layer(sizes) for _ in range(config.object_layers))
        self.sentence = nn.ModuleList(Layer(sizes) for _ in range(config.sentence_layers))
        own_ffn = config.cross_ffn == "official" and config.structure != "single-stream"
        self.cross = nn.ModuleList(CrossModalLayer(sizes, own_ffn) for _ in range(config.cross_layers))
        self.decoder = nn.ModuleList(DecoderLayer(sizes) for _ in range(config.decoder_layers))
        self.heads = self._heads(heads)
        for module in self.modules():
            as_bert(module, config.init_std)
        self.provides = self.provided(config)

    @classmethod
    def provided(cls, shape: TdenConfig) -> frozenset[Capability]:
        writes = shape.structure != "decoupled" or shape.decoder_layers > 0
        read: frozenset[Capability] = frozenset({"regions", "text", "unimodal"})
        written: frozenset[Capability] = frozenset({"target", "target without text", "two passes", "decode"})
        return read | written if writes else read

    def _heads(self, names: Iterable[str]) -> nn.ModuleDict:
        config = self.config
        official = config.similarity == "official"
        sizes = HeadSizes.of(
            config,
            tied=config.tied_words,
            similarity=config.similarity_width,
            region_layers=max(config.object_layers, 1) if official else 1,
            answer_width=config.answer_width or config.width,
            batch_norm=official,
        )

        def answer() -> nn.Module:
            if config.answers < 1:
                raise RecipeError("a head over answers was asked for, but the model's config says answers=0; set it")
            if config.vqa_fusion == "official" and not config.decoder_layers:
                raise RecipeError(
                    "vqa_fusion=official is a classifier over the encoder and one over the decoder, and "
                    "decoder_layers=0 leaves no decoder; set vqa_fusion=paper"
                )
            return TwoAnswers(sizes, config.cross_layers) if config.vqa_fusion == "official" else one(config.answers)

        def one(answers: int) -> nn.Module:
            if not config.cross_layers:
                raise RecipeError("cross_layers=0: nothing reads a question beside the picture; set cross_layers")
            return OneAnswer(sizes, 3 if config.decoder_layers else 2, answers)

        def choice() -> nn.Module:  # VCR: how well a response fits; the code's reads the encoder alone
            return ReadAnswer(sizes, config.cross_layers, 1) if config.vqa_fusion == "official" else one(1)

        own: dict[str, Callable[[], nn.Module]] = {"choice": choice, "match": lambda: PairHead(sizes)}
        own |= {} if config.answer_slot else {"answer": answer}
        return make_heads(names, sizes, self.text.words, own)

    @property
    def _reads_twice(self) -> bool:
        """Whether the decoder reads a question too."""
        wanted = {"choice"} if self.config.answer_slot else {"choice", "answer"}
        return len(self.decoder) > 0 and not wanted.isdisjoint(self.heads)

    # ---- reading -------------------------------------------------------------------------------------

    def forward(self, batch: Batch, objects: Stream | None = None, cross: bool = True) -> States:
        """`objects`: the object encoder's states of an earlier pass over the same regions. Without `cross` the
        cross-modal encoder rests: regions and text have not met.
        """
        objects = self.read_regions(batch) if objects is None else objects
        sentence = self.read_text(batch) if batch.text.shape[1] else None
        asked = self._asked(batch, objects.present.shape[1])
        meet = cross and len(self.cross) > 0 and (asked is None or bool(asked.any()))
        joint = self._meet(objects, sentence, asked) if meet and sentence is not None else None
        seen, text = joint if joint is not None else (objects, sentence)
        none = objects.last[:, :0]
        states = States(
            regions=seen.last[:, 1:],
            text=none if text is None else text.last[:, 1:],
            special={"img": seen.last[:, 0]} | ({"cls": text.last[:, 0]} if text is not None else {}),
            joint=joint,
        )
        states.special |= answer_slot_state(states.text, batch) if self.config.answer_slot else {}
        if sentence is not None:
            states.unimodal = self._unimodal(objects, sentence)
        if batch.target is not None:
            states.target = self._write(batch, batch.target, objects, self._memory(objects, joint))
        elif sentence is not None and self._reads_twice:
            # A question is not written: the decoder reads all of it (tden.py:93 of the code; the paper's "outputs of
            # cross-modal encoder and decoder").
            closed, memory = closed_of(sentence.present, none), self._memory(objects, joint)
            read = memory.last, closed_of(memory.present, none)
            states.written = Stream(after_each(self.decoder, sentence.last, closed, *read), sentence.present)
        return states

    def read_regions(self, batch: Batch) -> Stream:
        """[IMG] and the regions by themselves: what retrieval keeps of a picture."""
        refuse_more_regions(batch, self.config.max_regions)
        there = batch.regions_present.new_ones(batch.boxes.shape[0], 1)
        present = torch.cat([there, batch.regions_present], 1)
        return through(self.objects, self.regions(batch), present)

    def read_text(self, batch: Batch) -> Stream:
        """[CLS] and the words by themselves: what retrieval keeps of a text."""
        cls = torch.full_like(batch.text[:, :1], self.vocabulary.cls)
        present = torch.cat([batch.text_present.new_ones(batch.text.shape[0], 1), batch.text_present], 1)
        return through(self.sentence, self.embed_words(torch.cat([cls, batch.text], 1), 0, READ), present)

    def embed_pictures(self, batch: Batch) -> Float[Tensor, "B S"]:
        """The vectors by which pictures are found. The text of the batch is not read."""
        return self._similarity().of_pictures(self._alone(self.read_regions(batch)))

    def embed_texts(self, batch: Batch) -> Float[Tensor, "B S"]:
        """The vectors by which texts are found. The regions of the batch are not read."""
        return self._similarity().of_texts(self._alone(self.read_text(batch)))

    def _similarity(self) -> SimilarityHead:
        if "similarity" not in self.heads:
            raise RecipeError(
                "this model has no head 'similarity', so it cannot search: train it for retrieval, or pre-train with "
                "objectives.matching on"
            )
        head = self.heads["similarity"]
        assert isinstance(head, SimilarityHead)
        return head

    def _unimodal(self, objects: Stream, sentence: Stream) -> tuple[Stream, Stream] | None:
        if self.config.structure == "single-stream" and "similarity" not in self.heads:
            return None
        return self._alone(objects), self._alone(sentence)

    def _alone(self, stream: Stream) -> Stream:
        """One modality that has met no other. One stream has no encoder for that: its stack reads it by itself."""
        if self.config.structure != "single-stream":
            return stream
        return through(self.cross, stream.last, stream.present)

    def _asked(self, batch: Batch, count: int) -> Bool[Tensor, "B L"] | None:
        """Of regions and text that have met, the rows that are read; None: all. `count` positions are regions."""
        special: dict[str, Tensor | int] = {"img": 0, "cls": count}
        if self.config.answer_slot:
            special["slot"] = count + 1 + answer_slot(batch)
        starts = {"regions": 1, "text": count + 1}
        asked = requested_mask(batch, self.heads, count + 1 + batch.text.shape[1], starts, special)
        writes = batch.target is not None or self._reads_twice
        if asked is not None and writes and self.config.decoder_memory == "official":
            asked[:, :count] = True  # the decoder reads them
        return asked

    def _meet(self, objects: Stream, sentence: Stream, asked: Bool[Tensor, "B L"] | None) -> tuple[Stream, Stream]:
        count, present = objects.present.shape[1], torch.cat([objects.present, sentence.present], 1)
        layers = through(self.cross, torch.cat([objects.last, sentence.last], 1), present, count, asked).layers
        return (
            Stream(tuple(states[:, :count] for states in layers), objects.present),
            Stream(tuple(states[:, count:] for states in layers), sentence.present),
        )

    # ---- writing -------------------------------------------------------------------------------------

    def _memory(self, objects: Stream, joint: tuple[Stream, Stream] | None) -> Stream:
        """What the decoder attends to. In the code's pre-training and VQA it has met the text (fidelity.md, 2.3)."""
        return joint[0] if joint is not None and self.config.decoder_memory == "official" else objects

    def _write(
        self, batch: Batch, target: Int[Tensor, "B U"], objects: Stream, memory: Stream
    ) -> Float[Tensor, "B U D"]:
        x = self.embed_words(target, 0, WRITTEN)
        past, count = causal(target.shape[1], x), objects.present.shape[1]
        before = 0 if self.config.structure == "decoupled" else count
        asked = requested_mask(batch, self.heads, before + target.shape[1], {"target": before}, {})
        for layer in self.sentence:
            x = layer(x, past)
        if self.config.structure == "decoupled":
            return run_decoder(self.decoder, x, past, memory.last, closed_of(memory.present, x), requested=asked)
        x, closed = torch.cat([objects.last, x], 1), closed_over(objects.present, past)
        return after_each(self.cross, x, closed, count, asked=asked)[-1][:, count:]

    def begin(self, batch: Batch, room: int) -> tuple[Float[Tensor, "B V"], DecoderMemory]:
        """Read the regions once. The scores of each caption's first word, and a memory with room for `room` words."""
        if not {"target", "decode"} <= self.provides:
            raise RecipeError("decoder_layers=0: this model was made to read and cannot write; choose another")
        if room > self.config.max_text:
            raise RecipeError(
                f"{room} words were asked for; with positions={self.config.positions} there are places for "
                f"{self.config.max_text}"
            )
        objects = self.read_regions(batch)
        pasts = [Past() for _ in self.sentence]
        pasts += [Past(layer.look_up(objects.last)) for layer in self.decoder if isinstance(layer, DecoderLayer)]
        if self.config.structure != "decoupled":
            x, closed = objects.last, closed_of(objects.present, objects.last)
            for layer in self.cross:
                assert isinstance(layer, CrossModalLayer)
                pasts.append(Past(layer.attention.keys_values(x)))
                if layer is not self.cross[-1]:
                    x = layer(x, closed, x.shape[1])
        memory = DecoderMemory(pasts, closed_of(objects.present, objects.last), room)
        first = torch.full((objects.last.shape[0], 1), self.vocabulary.cls, device=objects.last.device)
        return self._next(first, memory)[:, 0], memory

    def follow(
        self, memory: DecoderMemory, words: Int[Tensor, "B K"], parents: Int[Tensor, "B K"]
    ) -> Float[Tensor, "B K V"]:
        """Beam k writes `words[b, k]` after what beam `parents[b, k]` had written: the scores of its next word."""
        memory.take(parents)
        return self._next(words, memory)

    def _next(self, words: Int[Tensor, "B K"], memory: DecoderMemory) -> Float[Tensor, "B K V"]:
        x = self.embed_words(words.view(-1, 1), memory.written, WRITTEN).view(*words.shape, -1)
        stack = [*self.sentence, *(self.decoder if self.config.structure == "decoupled" else self.cross)]
        scores: Tensor = self.heads["word"](write_word(stack, x, memory))
        return scores

    def embed_words(self, words: Int[Tensor, "N L"], start: int, segment: int) -> Float[Tensor, "N L D"]:
        end = start + words.shape[1]
        if end > self.config.positions:
            raise DataError(
                f"a text of {end} words with its mark, and there are positions for {self.config.positions}; cut it, "
                "or set positions"
            )
        positions = torch.arange(start, end, device=words.device)
        return self.text.finish(self.text(words, positions, torch.full_like(words, segment)))
