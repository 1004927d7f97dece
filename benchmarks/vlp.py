"""Unified VLP at its published size: one training step, and decoding. On the CPU, on as many threads as are given.

    uv run python -m benchmarks.vlp [threads]

Eight pictures of 100 regions with 21 words each. The authors' code took 2.83 s a step (forward, backward, AdamW; fp32)
and 11.3 s for beam 5 over 20 words (greedy 3.2), on two threads of an idle Xeon with AMX, which this need not be.
Writes benchmarks/results/vlp.json.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from random import Random

import torch

from benchmarks.machine import save_result
from diptych.core import Batch, Regions, Sample, Vocabulary, collate
from diptych.decoding import DecodingOptions, search
from diptych.models import UnifiedVLP, UnifiedVLPConfig
from diptych.objectives import MaskedLanguage, OneForward

PICTURES, REGIONS, WORDS = 8, 100, 21


def samples(vocabulary: Vocabulary) -> list[Sample]:
    def one(number: int) -> Sample:
        corner = torch.rand(REGIONS, 2) / 2
        seen = Regions(
            boxes=torch.cat([corner, corner + 0.4], 1),
            scores=torch.rand(REGIONS),
            size=(640, 480),
            classes=torch.rand(REGIONS, 1601).softmax(-1),
            features=torch.rand(REGIONS, 2048),
        )
        return Sample(str(number), str(number), seen, torch.randint(5, vocabulary.size, (WORDS,)))

    return [one(number) for number in range(PICTURES)]


def best_of(rounds: int, run: Callable[[], object]) -> float:
    """Seconds by the clock; the first round warms up."""
    run()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return round(min(taken), 3)


def training(model: UnifiedVLP, batch: Batch, update: OneForward, half: bool) -> float:
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-5, fused=True)

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            (losses,) = list(update.losses(model, batch))
        sum(losses.values()).backward()  # type: ignore[union-attr]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return best_of(2, step)


def decoding(model: UnifiedVLP, batch: Batch, beams: int, half: bool) -> float:
    options = DecodingOptions(beams=beams, max_words=20, stop_early=False)

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            search(model.eval(), batch, options)

    return best_of(2, run)


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    vocabulary = Vocabulary(28996, 0, 100, 101, 102, 103)
    model = UnifiedVLP(UnifiedVLPConfig(vocabulary=vocabulary, region_embedding="official"))
    update = OneForward((MaskedLanguage(vocabulary, most=3),))
    plain = samples(vocabulary)
    masked, asked = collate(update.prepare(plain, Random(0))), collate(plain)
    figures: dict[str, float] = {"threads": threads}
    for half in (True, False):
        kind = "bf16" if half else "fp32"
        figures[f"step {kind} s"] = training(model, masked, update, half)
        figures[f"greedy {kind} s"] = decoding(model, asked, 1, half)
        figures[f"beam 5 {kind} s"] = decoding(model, asked, 5, half)
    print(save_result("vlp", "uv run python -m benchmarks.vlp", figures).read_text())


if __name__ == "__main__":
    main()
