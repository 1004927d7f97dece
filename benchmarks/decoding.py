"""Compare beam search (5 beams) of Unified VLP at its published size with the authors' way of caching.

    uv run python -m benchmarks.decoding [--threads 2] [--small]

The peer caches hidden states, as the authors' decoder does (BertForSeq2SeqDecoder in modeling.py of LuoweiZhou/VLP).
For every layer and every beam it keeps the inputs of all positions. At each step it computes keys and values of all
positions again. Diptych keeps the keys and values; those of the regions are shared by an image's beams.

Both have the same weights and the same search. In fp32 they must generate the same words, which is asserted. The peer
runs in fp32, like the authors' code. Diptych runs in bf16, its default, and in fp32. The peer takes 9.3 times as long
as Diptych in bf16, and 3.94 times as long as Diptych in fp32 (docs/results/decoding.md).

There are eight images of 100 regions, and captions of 20 words that never end early. All run in turn in each round, and
the figures are medians of the ratios. The authors' own decoder took 11.3 s on two threads of an idle Xeon with AMX.
Writes benchmarks/results/decoding.json, but not with --small, a quick test of this program.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.machine import save_result
from benchmarks.steps import cpu_seconds
from benchmarks.vlp import VOCABULARY, samples
from diptych.core import TEXT_AFTER_REGIONS, Batch, attention_mask, collate
from diptych.models.decoding import DecodingOptions, Frames, search
from diptych.models.transformer import CLOSED, Layer
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPResolvedConfig

WORDS, BEAMS = 20, 5
SMALL: dict[str, Any] = {"width": 64, "heads": 4, "ffn": 128, "layers": 2}


@dataclass
class Hidden:
    """The cache of hidden states after t words. `layers` has the inputs of each layer (B * K, P + t, D); `closed` is
    the mask of the first P positions, regions and marks (B * K, 1, 1, P)."""

    layers: list[Tensor]
    closed: Tensor
    written: int = 0


class HiddenStates:
    """A `Writer` with the weights of `model` that caches hidden states instead of keys and values."""

    def __init__(self, model: UnifiedVLP) -> None:
        self.model, self.vocabulary = model, model.vocabulary

    def begin(self, batch: Batch, room: int) -> tuple[Tensor, Hidden]:
        model, attention = self.model, [TEXT_AFTER_REGIONS] * len(batch)
        read, present, _ = model._read(batch, attention)
        mask = model._write(model._filled(len(batch), 1, "mask"), 0, model._segments(attention)[:, 1:])
        present = torch.cat([present, present.new_ones(len(batch), 1)], 1)
        x = model.text.finish(torch.cat([read, mask], 1))
        closed = (~attention_mask(attention, read.shape[1], 1, 0, present))[:, None].to(x.dtype) * CLOSED
        kept = []
        for layer in model.encoder.layers:
            kept.append(x[:, :-1])  # without [MASK], which is never cached
            x = layer(x, closed)
        return model.heads["word"](x[:, -1]), Hidden(kept, closed[:, :, -1:, :-1])

    def follow(self, memory: Hidden, words: Tensor, parents: Tensor) -> Tensor:
        model, (batch, beams) = self.model, words.shape
        before = len(memory.closed) // batch
        rows = (torch.arange(batch)[:, None] * before + parents).flatten()
        closed = memory.closed[rows]
        both = torch.stack([words, torch.full_like(words, self.vocabulary.mask)], -1).flatten(0, 1)
        segments = model._segments([TEXT_AFTER_REGIONS]).expand(len(both), 2)[:, 1:]
        x = model.text.finish(model._write(both, memory.written, segments))
        own = x.new_zeros(len(both), 1, 2, memory.written + 2)
        own[:, :, 0, -1] = CLOSED  # the word does not attend to the [MASK] after it
        seen, kept = torch.cat([closed.expand(-1, -1, 2, -1), own], -1), []
        for layer, past in zip(model.encoder.layers, memory.layers, strict=True):
            assert isinstance(layer, Layer)
            all_ = torch.cat([past[rows], x], 1)
            kept.append(all_[:, :-1])
            keys, values = layer.attention.keys_values(all_)
            x = layer.finish(x, layer.attention.mix(layer.attention.queries(x), keys, values, seen))
        memory.layers, memory.closed, memory.written = kept, closed, memory.written + 1
        return model.heads["word"](x[:, 1]).view(batch, beams, -1)


def written(frames: Frames) -> list[Tensor]:
    return [torch.stack(frames.words), torch.stack(frames.parents)]


def same(ours: Frames, theirs: Frames) -> float:
    """Assert that both searches have the same words and parents in all beams. Return the largest difference of their
    scores."""
    assert all(torch.equal(a, b) for a, b in zip(written(ours), written(theirs), strict=True)), "the words differ"
    return float((torch.stack(ours.scores) - torch.stack(theirs.scores)).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tiny model, to test this program")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    shape: dict[str, Any] = {"region_embedding": "official", **(SMALL if given.small else {})}
    model = UnifiedVLP(UnifiedVLPResolvedConfig(vocabulary=VOCABULARY, **shape)).eval()
    # Spread the words' probabilities: with fresh weights they are nearly equal, and rounding would decide.
    torch.nn.init.normal_(model.text.words.weight, std=0.1)
    batch, options = collate(samples()), DecodingOptions(beams=BEAMS, max_words=WORDS, stop_early=False)

    def run(writer: Any, half: bool) -> Frames:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            return search(writer, batch, options)

    plain = HiddenStates(model)
    writers = {"ours, bf16": (model, True), "ours, fp32": (model, False), "hidden states, fp32": (plain, False)}
    said = {name: run(*writer) for name, writer in writers.items()}  # also warms up
    apart = same(said["ours, fp32"], said["hidden states, fp32"])
    taken: dict[str, list[float]] = {name: [] for name in writers}
    for _ in range(given.rounds):
        for name, writer in writers.items():
            taken[name].append(cpu_seconds(lambda writer=writer: run(*writer)))

    def ratio(name: str) -> float:
        return median(theirs / ours for theirs, ours in zip(taken["hidden states, fp32"], taken[name], strict=True))

    figures = {
        "threads": given.threads,
        "CPU seconds, median": {name: round(median(all_), 3) for name, all_ in taken.items()},
        "hidden states, fp32, over ours, bf16 (goal 8)": round(ratio("ours, bf16"), 2),
        "hidden states, fp32, over ours, fp32": round(ratio("ours, fp32"), 2),
        "largest difference of scores in fp32, all words the same": apart,
        "rounds": taken,
    }
    if given.small:
        print(json.dumps(figures, indent=2))
    else:
        print(save_result("decoding", "uv run python -m benchmarks.decoding", figures).read_text())


if __name__ == "__main__":
    main()
