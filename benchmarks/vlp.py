"""Compare a training step of Unified VLP at its published size with Hugging Face's BERT on sequences of the same
length.

    OMP_WAIT_POLICY=passive uv run --with transformers python -m benchmarks.vlp [threads]

A step is forward, backward and optimizer. The batch has eight images of 100 regions with 20 words and [SEP]: 123
positions, with three masked words each. Only the masked words pass the word head of both models, so this work is equal.
Diptych makes the step of `unified-vlp/pretrain` (BERT's Adam, with clipped gradients). BERT has torch's fused AdamW
without clipping.

Each runs with its default settings: Diptych keeps freed memory (`runtime.memory`, as on the command line), and BERT
runs in a separate process that returns it. BERT is timed with its memory kept, too. All run in turn in each round, in
CPU seconds of all threads; the figures are medians of the ratios. ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 disables AMX. The
authors' code took 2.83 s per step on two threads of an idle Xeon with AMX. Writes benchmarks/results/vlp.json, and on a
processor without bf16, on which all runs in fp32, vlp_fp32.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from statistics import median

import torch

from benchmarks.machine import save_result
from benchmarks.steps import Apart, Step, bert_step, in_turn, median_ratio, product_seconds, random_regions, stepping
from diptych.core import Sample, Vocabulary, collate
from diptych.objectives import MaskedLanguage, OneForward
from diptych.runtime.devices import gains_by_bf16
from diptych.runtime.memory import keep_freed_memory
from diptych.systems import find_recipe
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPResolvedConfig

COMMAND = "OMP_WAIT_POLICY=passive uv run --with transformers python -m benchmarks.vlp"
PICTURES, REGIONS, WORDS, HIDDEN, POSITIONS, ROUNDS = 8, 100, 21, 3, 123, 7
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

    return stepping(model, loss, find_recipe("unified-vlp/pretrain").optimizer)


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else torch.get_num_threads())
    torch.manual_seed(0)
    keep_freed_memory()
    model = UnifiedVLP(UnifiedVLPResolvedConfig(vocabulary=VOCABULARY, region_embedding="official"))
    bert = (VOCABULARY.size, PICTURES, POSITIONS, HIDDEN)
    kinds = ["bf16", "fp32"] if gains_by_bf16(torch.device("cpu")) else ["fp32"]
    mine, alone = f"ours, {kinds[0]}", f"matmuls alone, {kinds[0]}"
    steps: dict[str, Step] = {f"ours, {kind}": ours(model, half=kind == "bf16") for kind in kinds}
    steps |= {"BERT, fp32": Apart(bert_step, *bert), "BERT, fp32, memory kept": bert_step(*bert)}
    taken = in_turn(steps, ROUNDS)
    taken[alone] = [product_seconds(steps[mine]) for _ in range(3)]
    middle = {name: round(median(all_), 3) for name, all_ in taken.items()}
    figures = {
        "threads": torch.get_num_threads(),
        "CPU seconds, median": middle,
        "BERT over ours (goal 2.6)": median_ratio(taken["BERT, fp32"], taken[mine]),
        "BERT with its memory kept over ours": median_ratio(taken["BERT, fp32, memory kept"], taken[mine]),
        "of the step, matmuls alone (goal 0.8)": round(middle[alone] / middle[mine], 2),
        "rounds": taken,
    }
    print(save_result("vlp" if len(kinds) == 2 else "vlp_fp32", COMMAND, figures).read_text())


if __name__ == "__main__":
    main()
