"""Compare TDEN's two-pass training step at its published size with the same step as the authors' code makes it.

    OMP_WAIT_POLICY=passive uv run --with transformers python -m benchmarks.tden [--threads 2] [--small]

The model has 6/12/6/6 layers of width 768. The batch has eight images of 50 regions and [IMG], with texts of 36 words,
[CLS] and [SEP] included; the vocabulary has 30,522 words. The authors' code makes two optimizer steps, one after each
pass (xmodaler, tden_pretrainer.py). Both sides are timed like this. Diptych is also timed as in the paper: one
optimizer step for both passes, and the regions are encoded once.

The peer does the work of the released code with Hugging Face's BERT layers, from which the authors' layers are derived.
It has fp32, eager attention, and AdamW with torch's defaults. Its word heads run at all positions of both streams, its
region heads at all regions. Diptych does what `diptych pretrain` does: bf16, heads only at masked positions, and fused
AdamW. Each runs with its default settings (see `benchmarks.vlp`). The batch is prepared before timing starts. Both run
in turn in each round, and the figures are medians of the ratios. The authors' own code took 8.8 s on two threads of an
idle Xeon with AMX.

Writes benchmarks/results/tden.json, but not with --small, a quick test of this program.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.machine import save_result
from benchmarks.steps import Apart, Step, in_turn, median_ratio, random_regions
from diptych.core import Sample, Vocabulary, collate
from diptych.runtime.memory import keep_freed_memory
from diptych.systems import find_recipe
from diptych.systems.tden.model import Tden, TdenResolvedConfig

COMMAND = "OMP_WAIT_POLICY=passive uv run --with transformers python -m benchmarks.tden"
PICTURES, REGIONS, WORDS, CLASSES, FEATURES = 8, 50, 36, 1601, 2048
VOCABULARY = Vocabulary(30522, 0, 100, 101, 102, 103)
BASE: dict[str, Any] = {"width": 768, "heads": 12, "ffn": 3072}
SMALL: dict[str, Any] = {"width": 64, "heads": 4, "ffn": 128}
CPU = torch.device("cpu")
LAYERS = (6, 12, 6, 6)  # object encoder, sentence encoder, cross-modal encoder, cross-modal decoder


def samples(pictures: int) -> list[Sample]:
    """Return random samples. Their texts end with [SEP]; the model adds [CLS]."""

    def one(number: int) -> Sample:
        seen = random_regions(REGIONS, CLASSES, FEATURES)
        words = torch.randint(999, VOCABULARY.size, (WORDS - 2,))
        return Sample(str(number), str(number), seen, torch.cat([words, torch.tensor([VOCABULARY.sep])]))

    return [one(number) for number in range(pictures)]


def ours(name: str, sizes: dict[str, Any], pictures: int = PICTURES, device: torch.device = CPU) -> Callable[[], None]:
    recipe = find_recipe(name)
    update = recipe.objectives.schedule(VOCABULARY).at(0)
    shape = recipe.model.model_copy(update=sizes)
    config = TdenResolvedConfig(**shape.model_dump(), vocabulary=VOCABULARY, feature_size=FEATURES, classes=CLASSES)
    model = Tden(config, update_heads(update)).train().to(device)
    made = collate(update.prepare(samples(pictures), Random(0)))
    counts = {name: float(count) for name, count in update.counts(made).items()}
    batch = replace(made, places=update.places(made)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def iteration() -> None:
        passes = update.losses(model, batch)
        while True:
            with torch.autocast(device.type, torch.bfloat16):
                losses = next(passes, None)
            if losses is None:
                return
            torch.stack([loss / counts[n] for n, loss in losses.items()]).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return iteration


def operations(sizes: dict[str, Any], pictures: int) -> float:
    """Return the operations of the layers of `ours` with one step for both passes.

    Each weight costs two operations per position; the products of attention are added. Backward counts twice the
    forward pass. The regions are encoded once, all else twice.
    """
    width, ffn = sizes["width"], sizes["ffn"]
    seen, both = REGIONS + 1, REGIONS + 1 + WORDS

    def layer(positions: int, weights: int = 4 * width**2 + 2 * width * ffn) -> float:
        return positions * (weights + 2 * positions * width)

    across = WORDS * (2 * width**2 + 2 * seen * width) + seen * 2 * width**2  # the decoder's cross-attention to regions
    objects, sentence, cross, decoder = LAYERS
    twice = sentence * layer(WORDS) + cross * layer(both) + decoder * (layer(WORDS) + across)
    return 3 * 2 * pictures * (objects * layer(seen) + 2 * twice)


def update_heads(update: Any) -> set[str]:
    return {head for objective in update.objectives for head in objective.heads}


class Cross(nn.Module):
    """A cross-modal layer: all positions attend to all, then each modality has its own feed-forward (bert.py:390 of the
    code)."""

    def __init__(self, config: Any) -> None:
        from transformers.models.bert import modeling_bert as bert

        super().__init__()
        self.attention = bert.BertAttention(config)
        self.inner = nn.ModuleList(bert.BertIntermediate(config) for _ in range(2))
        self.outer = nn.ModuleList(bert.BertOutput(config) for _ in range(2))

    def forward(self, seen: Tensor, said: Tensor, closed: Tensor) -> tuple[Tensor, Tensor]:
        both = self.attention(torch.cat([seen, said], 1), closed)[0]
        parts = both[:, : seen.shape[1]], both[:, seen.shape[1] :]
        one, two = (outer(inner(x), x) for inner, outer, x in zip(self.inner, self.outer, parts, strict=True))
        return one, two


class Pool(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))
        self.out, self.norm = nn.Linear(width, 1024), nn.BatchNorm1d(1024)

    def forward(self, states: Tensor) -> Tensor:
        pooled: Tensor = self.norm(self.out((self.weigh(states).softmax(1) * states).sum(1)))
        return pooled


class Peer(nn.Module):
    """A model that does the work of xmodaler's TDEN in one pass of pre-training."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        from transformers import BertConfig
        from transformers.models.bert import modeling_bert as bert

        super().__init__()
        names = {"width": "hidden_size", "heads": "num_attention_heads", "ffn": "intermediate_size"}
        given = {names[name]: value for name, value in sizes.items()}
        config = BertConfig(vocab_size=VOCABULARY.size, type_vocab_size=3, attn_implementation="eager", **given)
        writes = BertConfig(
            vocab_size=VOCABULARY.size, is_decoder=True, add_cross_attention=True, attn_implementation="eager", **given
        )
        width, (objects, sentence, cross, decoder) = sizes["width"], LAYERS
        self.words = bert.BertEmbeddings(config)
        self.look, self.box, self.norm = nn.Linear(FEATURES, width), nn.Linear(5, width), nn.LayerNorm(width)
        self.objects = nn.ModuleList(bert.BertLayer(config) for _ in range(objects))
        self.sentence = nn.ModuleList(bert.BertLayer(config) for _ in range(sentence))
        self.cross = nn.ModuleList(Cross(config) for _ in range(cross))
        self.decoder = nn.ModuleList(bert.BertLayer(writes) for _ in range(decoder))
        self.word_head = bert.BertLMPredictionHead(config)
        self.region_head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.region_class = nn.Linear(width, CLASSES)
        self.pools = nn.ModuleList(Pool(width) for _ in range(objects))
        self.pool = Pool(width)

    def forward(self, batch: dict[str, Tensor], words: Tensor, target: Tensor, match: bool) -> dict[str, Tensor]:
        seen = F.dropout(self.norm(self.look(batch["features"]) + self.box(batch["boxes"])), 0.1, self.training)
        layers = []
        for layer in self.objects:
            seen = layer(seen, batch["open"][..., : seen.shape[1]])
            layers.append(seen)
        said, written = self.words(words), self.words(target, token_type_ids=torch.ones_like(target))
        past = torch.full((target.shape[1],) * 2, -10000.0).triu(1)[None, None]
        for layer in self.sentence:
            said, written = layer(said, batch["open"][..., : said.shape[1]]), layer(written, past)
        vectors = (self.pool(said), sum(p(x) for p, x in zip(self.pools, layers, strict=True)) / len(layers) ** 0.5)
        for meet in self.cross:
            seen, said = meet(seen, said, batch["open"])
        for layer in self.decoder:
            written = layer(written, past, seen, batch["open"][..., : seen.shape[1]])
        guesses = {"read": self.word_head(said), "written": self.word_head(written)}
        regions = self.region_class(self.region_head(seen[:, 1:])).log_softmax(-1)
        losses = [
            F.cross_entropy(guesses["read"].flatten(0, 1), batch["labels"].flatten(), ignore_index=-1),
            F.cross_entropy(guesses["written"].flatten(0, 1), batch["said"].flatten(), ignore_index=-1),
            F.kl_div(regions, batch["classes"], reduction="none").sum(-1)[batch["chosen"]].mean(),
            *([triplet(*vectors)] if match else []),
        ]
        return {"loss": sum(losses, torch.zeros(())), **{name: g.detach() for name, g in guesses.items()}}


def triplet(texts: Tensor, pictures: Tensor) -> Tensor:
    scores = F.normalize(texts, dim=-1) @ F.normalize(pictures, dim=-1).T
    own, same = scores.diagonal(), torch.eye(len(scores), dtype=torch.bool)
    one, two = ((0.2 + scores - own[:, None]), (0.2 + scores - own))
    hardest = [cost.clamp(min=0).masked_fill(same, 0).amax(axis).sum() for cost, axis in ((one, 1), (two, 0))]
    return (hardest[0] + hardest[1]) / len(scores)


def theirs(sizes: dict[str, Any]) -> Callable[[], None]:
    peer = Peer(sizes).train()
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-4)
    clean = torch.randint(999, VOCABULARY.size, (PICTURES, WORDS))
    hidden = torch.zeros(PICTURES, WORDS, dtype=torch.bool)
    hidden[:, 1:-1:7] = True  # 15%
    batch = {
        "features": torch.rand(PICTURES, REGIONS + 1, FEATURES),
        "boxes": torch.rand(PICTURES, REGIONS + 1, 5),
        "classes": torch.rand(PICTURES, REGIONS, CLASSES).softmax(-1),
        "chosen": torch.arange(REGIONS).expand(PICTURES, -1) % 7 == 0,
        "open": torch.zeros(PICTURES, 1, 1, REGIONS + 1 + WORDS),
        "labels": clean.masked_fill(~hidden, -1),
        "said": clean[:, 1:],
    }
    words = clean.masked_fill(hidden, VOCABULARY.mask)

    def step(read: Tensor, target: Tensor, match: bool) -> dict[str, Tensor]:
        told = peer(batch, read, target, match)
        told["loss"].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return told

    def iteration() -> None:
        told = step(words, words[:, :-1], True)
        read = torch.where(hidden, told["read"].argmax(-1), words)
        following = torch.cat([words[:, :1], told["written"].argmax(-1)[:, :-1]], 1)
        step(read, torch.where(hidden[:, :-1], following, words[:, :-1]), False)

    return iteration


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tiny model, to test this program")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    keep_freed_memory()  # the command line does this, too
    sizes = SMALL if given.small else BASE
    runs: dict[str, Step] = {
        "ours, two steps": ours("tden/official/pretrain", sizes),
        "ours, one step": ours("tden/pretrain", sizes),
        "peer": Apart(theirs, sizes),
        "peer, memory kept": theirs(sizes),
    }
    taken = in_turn(runs, given.rounds)
    one, two = taken["ours, one step"], taken["ours, two steps"]
    figures = {
        "threads": given.threads,
        "CPU seconds, median": {name: round(median(all_), 3) for name, all_ in taken.items()},
        "peer over ours, two steps (goal 2.5)": median_ratio(taken["peer"], two),
        "peer over ours, one step, as in the paper": median_ratio(taken["peer"], one),
        "peer with its memory kept over ours, two steps": median_ratio(taken["peer, memory kept"], two),
        "rounds": taken,
    }
    if given.small:
        print(json.dumps(figures, indent=2))
    else:
        print(save_result("tden", COMMAND, figures).read_text())


if __name__ == "__main__":
    main()
