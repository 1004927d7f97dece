"""TDEN (Li, Pan, Yao, Chen, Mei, AAAI 2021, arXiv 2101.11562): two separate encoders, a joint encoder, a decoder.

Images and texts have separate encoders. Understanding and generation are separate too: the cross-modal encoder reads,
and the cross-modal decoder generates text (Fig. 2c). Both receive words from the same sentence encoder. Words that are
read attend to each other; words that are generated attend only to earlier words. Segment embeddings distinguish the two
kinds of words.

    block      regions               text                         target
              [IMG] r1 r2 ... rR    [CLS] w1 w2 ... wT [SEP]     [CLS] w1 w2 ... wT      predicts w1 w2 ... wT [SEP]

    position   boxes                 0    1  2                    0    1  2
    segment                          0 -------------- 0           1 ------------ 1

                  |                     |                            |
            object encoder        sentence encoder             sentence encoder (the same layers, past alone)
                  |-------.  ISM  .-----|                            |
                  |    cross-modal encoder: MLM, MOC                 |
                  |--------------------------------------> cross-modal decoder: MSG

[IMG] has the mean feature of the regions that are not hidden, and the whole image as its box. [SEP] is the last token
of `Sample.text`, and [CLS] the first of `Sample.target`; the model adds [CLS] to the text. The config can also select
the other structures of Table 1. With one stream, a single stack of layers reads and generates. With two streams, the
cross-modal encoder also generates text.
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
from diptych.models.decoder import DecoderLayer, causal, closed_of, run_decoder
from diptych.models.embeddings import TextEmbedding
from diptych.models.heads import HeadSizes, SimilarityHead, answer_slot, answer_slot_state, make_heads, needs_size
from diptych.models.rows import requested_mask
from diptych.models.system import ResolvedConfig, as_bert
from diptych.models.text import TINY, DecoderModel, TextConfig, refuse_more_room, refuse_more_words
from diptych.models.transformer import DecoderCache, Layer, LayerCache, LayerSizes
from diptych.runtime.errors import RecipeError
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
READ, WRITTEN = 0, 1  # segment ids of the text that is read, and of the target that the decoder generates


class TdenConfig(TextConfig):
    """The config of TDEN.

    Where the paper and the released code differ, a field selects `paper` or `official` (docs/fidelity.md).
    """

    structure: Structure = "decoupled"
    """One stream, two streams, or two decoupled streams with a separate decoder (Table 1)."""
    object_layers: MaybeLayers = 6
    """Layers of the object encoder."""
    sentence_layers: MaybeLayers = 12
    """Layers of the sentence encoder."""
    cross_layers: MaybeLayers = 6
    """Layers of the cross-modal encoder; 0: none."""
    decoder_layers: MaybeLayers = 6
    """Layers of the cross-modal decoder; 0: none."""
    segments: Size = 3
    """Number of segment embeddings, as in the code; only 0 and 1 are used."""
    embedding_norm_eps: Epsilon = 1e-5
    """Epsilon of the embeddings' layer norm."""
    decoder_memory: Source = "paper"
    """What the decoder attends to. paper: the object encoder; official: the cross-modal encoder if there is a text."""
    cross_ffn: Source = "paper"
    """paper: regions and words share a feed-forward layer; official: each has its own."""
    vqa_fusion: Source = "paper"
    """paper: one answer classifier for encoder and decoder; official: one for each."""
    similarity: Source = "paper"
    """paper: the states of the last object layer are pooled; official: of every object layer, with batch norm."""
    similarity_width: Size = 1024
    """Width of the vectors that ISM compares."""
    answer_width: Size | None = None
    """Width of the pooled vectors from which answers are predicted; null: the width of the states."""
    tied_words: bool = True
    """Whether the word head's output matrix is the word embedding."""

    structural: ClassVar = frozenset(
        {"structure", "decoder_memory", "cross_ffn", "vqa_fusion", "similarity", "tied_words"}
    )

    reserved: ClassVar = 1  # number of positions for [CLS]

    @model_validator(mode="after")
    def _fits(self) -> TdenConfig:
        unused = {
            "decoupled": (),
            "two-stream": ("decoder_layers",),
            "single-stream": ("object_layers", "sentence_layers", "decoder_layers"),
        }[self.structure]
        if there := [name for name in unused if getattr(self, name)]:
            raise ValueError(f"structure={self.structure} cannot use {' or '.join(there)}; set {'=0, '.join(there)}=0")
        if self.structure != "decoupled" and not self.cross_layers:
            raise ValueError(
                f"structure={self.structure} needs cross layers to read and write; set cross_layers above 0"
            )
        return self

    @classmethod
    def base(cls, **changes: Any) -> TdenConfig:
        """Return the base size: 6 object, 12 sentence, 6 cross and 6 decoder layers, as in the code and in ViLBERT."""
        return cls(**{**_layers(6, 12, 6, 6, changes), **changes})

    @classmethod
    def tiny(cls, **changes: Any) -> TdenConfig:
        """Return a small config that trains in minutes on one CPU core."""
        sizes = {"positions": 64, "similarity_width": 128}
        return cls(**{**TINY, **sizes, **_layers(1, 2, 2, 2, changes), **changes})


def _layers(objects: int, sentence: int, cross: int, decoder: int, changes: dict[str, Any]) -> dict[str, int]:
    """Return the numbers of layers for the structure in `changes`.

    With one stream, the single stack has as many layers as a word passes through in the decoupled structure.
    """
    structure = changes.get("structure", "decoupled")
    if structure == "single-stream":
        objects, sentence, cross = 0, 0, sentence + cross
    decoder = decoder if structure == "decoupled" else 0
    return {"object_layers": objects, "sentence_layers": sentence, "cross_layers": cross, "decoder_layers": decoder}


class TdenResolvedConfig(TdenConfig, ResolvedConfig):
    """TdenConfig with values that depend on the data: vocabulary, feature size, numbers of classes and answers."""


class Tden(DecoderModel):
    """The TDEN model: an object encoder and a sentence encoder, then a cross-modal encoder and a decoder."""

    config: TdenResolvedConfig

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
        config, similarity, width = self.config, self.config.similarity_width, self.config.answer_width
        pooled = {"similarity": similarity, "answer_width": width or config.width, "tied": config.tied_words}
        if config.similarity == "official":
            pooled |= {"region_layers": max(config.object_layers, 1), "batch_norm": True}
        sizes = HeadSizes.of(config, **pooled)

        def answer() -> nn.Module:
            needs_size(config.answers, "answers")
            if config.vqa_fusion == "official" and not config.decoder_layers:
                raise RecipeError(
                    "vqa_fusion=official needs a decoder, but decoder_layers=0; raise it, or set vqa_fusion=paper"
                )
            return TwoAnswers(sizes, config.cross_layers) if config.vqa_fusion == "official" else one(config.answers)

        def one(answers: int) -> nn.Module:
            if not config.cross_layers:
                raise RecipeError("cross_layers=0, so no layer reads both question and image; set it above 0")
            return OneAnswer(sizes, 3 if config.decoder_layers else 2, answers)

        # For VCR, the head scores a response. With vqa_fusion=official, it reads only the encoder.
        def choice() -> nn.Module:
            return ReadAnswer(sizes, config.cross_layers, 1) if config.vqa_fusion == "official" else one(1)

        own: dict[str, Callable[[], nn.Module]] = {"choice": choice, "match": lambda: PairHead(sizes)}
        own |= {} if config.answer_slot else {"answer": answer}
        return make_heads(names, sizes, self.text.words, own)

    @property
    def _reads_twice(self) -> bool:
        """Return True if the decoder also reads questions."""
        wanted = {"choice"} if self.config.answer_slot else {"choice", "answer"}
        return len(self.decoder) > 0 and not wanted.isdisjoint(self.heads)

    # ---- encoding of regions and text ----------------------------------------------------------------

    def forward(self, batch: Batch, objects: Stream | None = None, cross: bool = True) -> States:
        """Compute the states of a batch, from which heads predict.

        `objects`: the object encoder's states from an earlier pass over the same regions. With `cross=False`, the
        cross-modal encoder does not run, so each state depends only on one modality.
        """
        objects = self.read_regions(batch) if objects is None else objects
        sentence = self.read_text(batch) if batch.text.shape[1] else None
        requested = self._requested(batch, objects.present.shape[1])
        joins = cross and len(self.cross) > 0 and (requested is None or bool(requested.any()))
        joint = self._join(objects, sentence, requested) if joins and sentence is not None else None
        regions, text = joint if joint is not None else (objects, sentence)
        none = objects.last[:, :0]
        states = States(
            regions=regions.last[:, 1:],
            text=none if text is None else text.last[:, 1:],
            special={"img": regions.last[:, 0]} | ({"cls": text.last[:, 0]} if text is not None else {}),
            joint=joint,
        )
        states.special |= answer_slot_state(states.text, batch) if self.config.answer_slot else {}
        if sentence is not None:
            states.unimodal = self._unimodal(objects, sentence)
        if batch.target is not None:
            states.target = self._write(batch, batch.target, objects, self._memory(objects, joint))
        elif sentence is not None and self._reads_twice:
            # The decoder reads the whole question, without a causal mask (tden.py:93 of the authors' code; "outputs of
            # cross-modal encoder and decoder" in the paper).
            closed, memory = closed_of(sentence.present, none), self._memory(objects, joint)
            read = memory.last, closed_of(memory.present, none)
            states.written = Stream(after_each(self.decoder, sentence.last, closed, *read), sentence.present)
        return states

    def read_regions(self, batch: Batch) -> Stream:
        """Return the states of [IMG] and the regions, encoded without the text.

        Retrieval stores them for each image.
        """
        self.refuse_more_regions(batch)
        img = batch.regions_present.new_ones(batch.boxes.shape[0], 1)
        present = torch.cat([img, batch.regions_present], 1)
        return through(self.objects, self.regions(batch), present)

    def read_text(self, batch: Batch) -> Stream:
        """Return the states of [CLS] and the words, encoded without the image. Retrieval stores them for each text."""
        cls = torch.full_like(batch.text[:, :1], self.vocabulary.cls)
        present = torch.cat([batch.text_present.new_ones(batch.text.shape[0], 1), batch.text_present], 1)
        return through(self.sentence, self.embed_words(torch.cat([cls, batch.text], 1), 0, READ), present)

    def embed_pictures(self, batch: Batch) -> Float[Tensor, "B S"]:
        """Return an embedding of each image for retrieval. The text of the batch is ignored."""
        return self._similarity().of_pictures(self._alone(self.read_regions(batch)))

    def embed_texts(self, batch: Batch) -> Float[Tensor, "B S"]:
        """Return an embedding of each text for retrieval. The regions of the batch are ignored."""
        return self._similarity().of_texts(self._alone(self.read_text(batch)))

    def _similarity(self) -> SimilarityHead:
        if "similarity" not in self.heads:
            raise RecipeError(
                "the model has no head 'similarity', which search needs; fine-tune it for retrieval, or pre-train with "
                "objectives.matching"
            )
        head = self.heads["similarity"]
        assert isinstance(head, SimilarityHead)
        return head

    def _unimodal(self, objects: Stream, sentence: Stream) -> tuple[Stream, Stream] | None:
        if self.config.structure == "single-stream" and "similarity" not in self.heads:
            return None
        return self._alone(objects), self._alone(sentence)

    def _alone(self, stream: Stream) -> Stream:
        """Return the states of images or texts, encoded without the other.

        With one stream, the single stack encodes them.
        """
        if self.config.structure != "single-stream":
            return stream
        return through(self.cross, stream.last, stream.present)

    def _requested(self, batch: Batch, count: int) -> Bool[Tensor, "B L"] | None:
        """Return a mask of the joint positions whose last states are needed. None means all positions.

        `count`: number of positions before the text.
        """
        special: dict[str, Tensor | int] = {"img": 0, "cls": count}
        if self.config.answer_slot:
            special["slot"] = count + 1 + answer_slot(batch)
        blocks = {"regions": 1, "text": count + 1}
        requested = requested_mask(batch, self.heads, count + 1 + batch.text.shape[1], blocks, special)
        writes = batch.target is not None or self._reads_twice
        if requested is not None and writes and self.config.decoder_memory == "official":
            requested[:, :count] = True  # the decoder attends to the joint states of all regions, so all are computed
        return requested

    def _join(self, objects: Stream, sentence: Stream, requested: Bool[Tensor, "B L"] | None) -> tuple[Stream, Stream]:
        """Run the cross-modal encoder. Return the states of the regions and of the text."""
        count, present = objects.present.shape[1], torch.cat([objects.present, sentence.present], 1)
        layers = through(
            self.cross, torch.cat([objects.last, sentence.last], 1), present, count, requested=requested
        ).layers
        return (
            Stream(tuple(states[:, :count] for states in layers), objects.present),
            Stream(tuple(states[:, count:] for states in layers), sentence.present),
        )

    # ---- text generation -----------------------------------------------------------------------------

    def _memory(self, objects: Stream, joint: tuple[Stream, Stream] | None) -> Stream:
        """Return the region states that the decoder attends to.

        With decoder_memory=official, they are the joint states in pre-training and VQA (docs/fidelity.md, 2.3).
        """
        return joint[0] if joint is not None and self.config.decoder_memory == "official" else objects

    def _write(
        self, batch: Batch, target: Int[Tensor, "B U"], objects: Stream, memory: Stream
    ) -> Float[Tensor, "B U D"]:
        x = self.embed_words(target, 0, WRITTEN)
        past, count = causal(target.shape[1], x), objects.present.shape[1]
        before = 0 if self.config.structure == "decoupled" else count
        requested = requested_mask(batch, self.heads, before + target.shape[1], {"target": before}, {})
        for layer in self.sentence:
            x = layer(x, past)
        if self.config.structure == "decoupled":
            return run_decoder(self.decoder, x, past, memory.last, closed_of(memory.present, x), requested=requested)
        x, closed = torch.cat([objects.last, x], 1), closed_over(objects.present, past)
        return after_each(self.cross, x, closed, count, requested=requested)[-1][:, count:]

    def begin(self, batch: Batch, room: int) -> tuple[Float[Tensor, "B V"], DecoderCache]:
        """Read the regions once.

        Return the scores of each caption's first word, and a cache with room for `room` words.

        Raises RecipeError if the model has no decoder, or has fewer than `room` positions.
        """
        if not {"target", "decode"} <= self.provides:
            raise RecipeError(
                "this model cannot generate text, because it has no decoder (decoder_layers=0); choose another model"
            )
        refuse_more_room(room, self.config)
        objects = self.read_regions(batch)
        pasts = [LayerCache() for _ in self.sentence]
        pasts += [LayerCache(layer.look_up(objects.last)) for layer in self.decoder if isinstance(layer, DecoderLayer)]
        if self.config.structure != "decoupled":
            x, closed = objects.last, closed_of(objects.present, objects.last)
            for layer in self.cross:
                assert isinstance(layer, CrossModalLayer)
                pasts.append(LayerCache(layer.attention.keys_values(x)))
                if layer is not self.cross[-1]:
                    x = layer(x, closed, x.shape[1])
        return self.begin_writing(pasts, closed_of(objects.present, objects.last), room)

    def writing_layers(self) -> list[nn.Module]:
        return [*self.sentence, *(self.decoder if self.config.structure == "decoupled" else self.cross)]

    def embed_next(self, words: Int[Tensor, "N 1"], place: int) -> Float[Tensor, "N 1 D"]:
        return self.embed_words(words, place, WRITTEN)

    def embed_words(self, words: Int[Tensor, "N L"], start: int, segment: int) -> Float[Tensor, "N L D"]:
        """Embed words. The first word has the position `start`. `segment`: READ or WRITTEN."""
        end = start + words.shape[1]
        refuse_more_words(end, self.config.positions)
        positions = torch.arange(start, end, device=words.device)
        return self.text.finish(self.text(words, positions, torch.full_like(words, segment)))
