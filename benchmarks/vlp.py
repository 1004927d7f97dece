"""Unified VLP at its published size, beside Hugging Face's BERT of the same size and sequence; and decoding.

    uv run --with transformers python -m benchmarks.vlp [threads]

A step is forward, backward and AdamW on eight pictures of 100 regions with 20 words and their [SEP]: 123 positions,
three words hidden each. Both models pass the head with the hidden words alone, so the work there is equal. They take
turns within each round; what counts is the median of the ratios. The authors' code took 2.83 s a step and 11.3 s for
beam 5 over 20 words on two threads of an idle Xeon with AMX (design/demo.md, section 9), which this need not be.
Writes benchmarks/results/vlp.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from statistics import median

import torch

from benchmarks.machine import save_result
from benchmarks.steps import bert_step, matmul_seconds, random_regions, seconds, stepping
from diptych.core import Batch, Sample, Vocabulary, collate
from diptych.decoding import DecodingOptions, search
from diptych.models import UnifiedVLP, UnifiedVLPResolvedConfig
from diptych.objectives import MaskedLanguage, OneForward

PICTURES, REGIONS, WORDS, HIDDEN, POSITIONS, ROUNDS = 8, 100, 21, 3, 123, 5
VOCABULARY = Vocabulary(28996, 0, 100, 101, 102, 103)


def samples() -> list[Sample]:
    def one(number: int) -> Sample:
        seen = random_regions(REGIONS, 1601, 2048)
        return Sample(str(number), str(number), seen, torch.randint(5, VOCABULARY.size, (WORDS,)))

    return [one(number) for number in range(PICTURES)]


def ours(model: UnifiedVLP, half: bool) -> Callable[[], None]:
    update = OneForward((MaskedLanguage(VOCABULARY, rate=1.0, most=HIDDEN),))
    batch = collate(update.prepare(samples(), Random(0)))
    assert int((batch.text_labels >= 0).sum()) == PICTURES * HIDDEN

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            (losses,) = list(update.losses(model, batch))
        return sum(losses.values(), torch.zeros(()))

    return stepping(model.train().parameters(), loss)


def decoding(model: UnifiedVLP, batch: Batch, beams: int) -> Callable[[], None]:
    options = DecodingOptions(beams=beams, max_words=20, stop_early=False)

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            search(model.eval(), batch, options)

    return run


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else torch.get_num_threads())
    torch.manual_seed(0)
    model = UnifiedVLP(UnifiedVLPResolvedConfig(vocabulary=VOCABULARY, region_embedding="official"))
    steps = {
        "ours, bf16": ours(model, half=True),
        "ours, fp32": ours(model, half=False),
        "BERT, fp32": bert_step(VOCABULARY.size, PICTURES, POSITIONS, HIDDEN),
    }
    taken: dict[str, list[float]] = {name: [] for name in (*steps, "matmuls alone, bf16", "beam 5", "greedy")}
    for step in steps.values():
        step()
    asked = collate(samples())
    for _ in range(ROUNDS):
        for name, step in steps.items():
            model.train()
            taken[name].append(seconds(step))
        taken["matmuls alone, bf16"].append(matmul_seconds(PICTURES * POSITIONS))
        taken["greedy"].append(seconds(decoding(model, asked, 1)))
        taken["beam 5"].append(seconds(decoding(model, asked, 5)))
    ratios = [bert / mine for bert, mine in zip(taken["BERT, fp32"], taken["ours, bf16"], strict=True)]
    figures = {
        "threads": torch.get_num_threads(),
        "seconds, median": {name: round(median(all_), 3) for name, all_ in taken.items()},
        "BERT over ours (goal 2.5)": round(median(ratios), 2),
        "of the step, matmuls alone": round(median(taken["matmuls alone, bf16"]) / median(taken["ours, bf16"]), 2),
        "rounds": taken,
    }
    print(save_result("vlp", "uv run --with transformers python -m benchmarks.vlp", figures).read_text())


if __name__ == "__main__":
    main()
