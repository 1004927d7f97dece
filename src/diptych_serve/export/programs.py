"""The steps of a model as functions of tensors only, which `torch.export` can trace.

    detect   squares (B, 3, side, side) uint8 -> boxes, scores, classes, features of the candidates, whole
             for a grid: the features of all cells (B, n * n, F), row by row
             for NanoDet and CenterNet: boxes, scores, classes, and two maps (B, F, h, w)
    maps     squares -> the map of a backbone that replaces these two maps
    begin    regions -> scores of the first word and the decoder's cache: closed, read, written
    follow   words, closed, read, written -> scores of the next word, `written` with one more word
    answer   regions, a question -> logits of the answers

`read` (2 N, B, heads, P, d) has the input's keys and values for N layers and P positions. `written` (2 M, B, 1, heads,
words, d) has the keys and values of the words so far for M layers. Captions are decoded greedily, so there is one beam.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from diptych.core import BIDIRECTIONAL, Batch
from diptych.models.transformer import DecoderCache, LayerCache
from diptych.runtime.errors import ServingError

REGIONS = ("boxes", "scores", "sizes", "present", "features", "classes", "whole")


class Begin(nn.Module):
    """The first decoding step: encode the regions and score the first word."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, *regions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        scores, memory = self.model.begin(batch_of(regions), 1)
        read = [rows for layer in memory.layers if layer.read is not None for rows in layer.read]
        end = memory.written  # positions written so far: 1 (the start token) with a decoder, 0 in Unified VLP
        written = [rows[..., :end, :] for layer in memory.layers for rows in (layer.keys, layer.values)]
        return scores, memory.closed, torch.stack(read), torch.stack(written)


class Follow(nn.Module):
    """A later decoding step.

    `reads`: for each layer, True if it attends to the input. `new`: number of positions that a step adds.
    """

    def __init__(self, model: Any, reads: list[bool], new: int) -> None:
        super().__init__()
        self.model, self.reads, self.new = model, reads, new

    @classmethod
    def of(cls, model: Any, regions: tuple[Tensor, ...]) -> Follow:
        """Return the step for a model.

        The example `regions` are encoded once, to find out which layers attend to the input.
        """
        _, memory = model.begin(batch_of(regions), 1)
        return cls(model, [layer.read is not None for layer in memory.layers], memory.room)

    def forward(self, words: Tensor, closed: Tensor, read: Tensor, written: Tensor) -> tuple[Tensor, Tensor]:
        count, pairs = written.shape[-2], range(0, written.shape[0], 2)
        empty = written.new_zeros(*written.shape[:-2], self.new, written.shape[-1])
        room, inputs = torch.cat([written, empty], -2), iter(zip(read[0::2], read[1::2], strict=True))
        layers = [
            LayerCache(next(inputs) if reads else None, room[n], room[n + 1])
            for n, reads in zip(pairs, self.reads, strict=True)
        ]
        memory = DecoderCache(layers, closed, count + self.new, count)
        scores = self.model.follow(memory, words[:, None], torch.zeros_like(words)[:, None])
        grown = [rows for layer in memory.layers for rows in (layer.keys, layer.values) if rows is not None]
        return scores[:, 0], torch.stack(grown)[..., : count + 1, :]


class AnswerProgram(nn.Module):
    """Computes the logits of the answers to questions, (B, answers)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, text: Tensor, text_present: Tensor, *regions: Tensor) -> Tensor:
        logits: Tensor = self.model.heads["answer"](self.model(batch_of(regions, text, text_present)))
        return logits.float()


def batch_of(regions: tuple[Tensor, ...], text: Tensor | None = None, text_present: Tensor | None = None) -> Batch:
    """Return a batch from tensors in the order of `REGIONS`. All rows share one attention mask."""
    boxes, scores, sizes, present, features, classes, whole = regions
    none, nothing = torch.zeros_like(present), sizes[:, :0]
    text = nothing if text is None else text
    return Batch(
        keys=["program"], pictures=["program"], attention=[BIDIRECTIONAL], groups=[None], truths=[{}],
        text=text, text_present=none[:, :0] if text_present is None else text_present, text_labels=text,
        matched=present[:, 0], boxes=boxes, scores=scores, sizes=sizes, regions_present=present, chosen=none,
        hidden=none, classes=classes, features=features, whole=whole if whole.shape[1] else None,
    )  # fmt: skip


def example_regions(rows: int, count: int, features: int, classes: int, whole: int) -> tuple[Tensor, ...]:
    """Return random inputs in the order of `REGIONS`, as example inputs for tracing."""
    corners = torch.rand(rows, count, 2) / 2
    return (
        torch.cat([corners, corners + 0.4], -1),
        torch.rand(rows, count),
        torch.full((rows, 2), 160),
        torch.ones(rows, count, dtype=torch.bool),
        torch.rand(rows, count, features),
        torch.rand(rows, count, classes).softmax(-1),
        torch.rand(rows, whole),
    )


def check_exportable(config: Any, where: object) -> None:
    """Raise ServingError for a model that cannot be exported."""
    if config.reads_pixels:
        raise ServingError(f"{where} reads pixels (model.network); only models of region features can be exported")
    if getattr(config, "region_budget", "paper") == "official":
        raise ServingError(
            f"{where} drops regions by the length of the text (model.region_budget=official), which cannot be traced; "
            "export a model with region_budget=paper"
        )
