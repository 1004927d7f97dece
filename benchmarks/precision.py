"""Measure what bf16 gains when models generate captions, by batch size, and how it changes the captions.

    uv run python -m benchmarks.precision MODEL STORE [--split test] [--pictures 1000]

MODEL is the folder of a caption model. STORE has images with captions, extracted with its detector. First, greedy
decoding of 20 words is timed for MODEL, and for Unified VLP at its published size with random weights. Both formats run
in turn on the same batch, and times are medians. Then all images are captioned once in each format. The page shows how
many captions are identical, and CIDEr with its interval.

Writes benchmarks/results/precision.json. With ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, which disables AMX, it writes
precision_no_amx.json.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.machine import of_score, save_result
from benchmarks.vlp import VOCABULARY, samples
from diptych.core import Batch, Writer, collate
from diptych.data.store.store import Store
from diptych.models.decoding import DecodingOptions, search
from diptych.runs.folder import ModelFolder, open_model
from diptych.runtime.devices import autocast
from diptych.systems.unified_vlp.model import UnifiedVLP, UnifiedVLPResolvedConfig
from diptych.tasks import find_task
from diptych.tasks.caption import Captioning
from diptych.tasks.run import predict_records

FORMATS, COUNTS = ("fp32", "bf16"), (1, 2, 4, 8, 32, 64)
CPU = torch.device("cpu")
GREEDY = DecodingOptions(beams=1, max_words=20, stop_early=False)


def milliseconds(model: Writer, batch: Batch, rounds: int) -> dict[str, Any]:
    """Return the median CPU milliseconds of one batch in each format, and their ratio."""
    taken: dict[str, list[float]] = {name: [] for name in FORMATS}
    for number in range(rounds + 1):
        for name in FORMATS:
            began = time.process_time()
            with torch.no_grad(), autocast(CPU, name):
                search(model, batch, GREEDY)
            if number:  # the first call warms up
                taken[name].append(1000 * (time.process_time() - began))
    ratio = median(full / half for full, half in zip(taken["fp32"], taken["bf16"], strict=True))
    return {name: round(median(all_), 1) for name, all_ in taken.items()} | {"fp32 over bf16": round(ratio, 2)}


def by_pictures(model: Writer, batches: dict[int, Batch], rounds: int) -> dict[str, Any]:
    return {f"{count} pictures": milliseconds(model, batch, rounds) for count, batch in batches.items()}


def published() -> tuple[UnifiedVLP, dict[int, Batch]]:
    torch.manual_seed(0)
    model = UnifiedVLP(UnifiedVLPResolvedConfig(vocabulary=VOCABULARY, region_embedding="official")).eval()
    eight = samples()
    return model, {count: collate(eight[:count]) for count in COUNTS if count <= len(eight)}


def written(folder: ModelFolder, store: Store, split: str, most: int) -> dict[str, Any]:
    """Caption the same images in each format, 64 at a time. Return the share of identical captions, and CIDEr."""
    task, spec = Captioning(folder.tokens, DecodingOptions(beams=1)), find_task("caption")
    records = [store.record(number) for number in store.split(split)[:most]]
    said = {}
    for name in FORMATS:
        folder.on(CPU, name)
        said[name] = spec.by_key(predict_records(task, folder.model, records))
    scores = {name: spec.scoring.score(captions, records, None)["CIDEr"] for name, captions in said.items()}
    same = sum(said["fp32"][key] == said["bf16"][key] for key in said["fp32"])
    return {
        "pictures": len(records),
        "the same words, %": round(100 * same / len(records), 1),
        "CIDEr": {name: of_score(score.to_json()) for name, score in scores.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a model folder that captions")
    parser.add_argument("store", type=Path, help="a store extracted with its detector")
    parser.add_argument("--split", default="test", help="split whose images are captioned (default: test)")
    parser.add_argument("--pictures", type=int, default=1000, help="largest number of images (default: 1000)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder, store = open_model(given.model), Store(given.store)
    task = Captioning(folder.tokens, GREEDY)
    asked = [task.queries(store.record(number))[0] for number in store.split(given.split)[: max(COUNTS)]]
    small = {count: collate(asked[:count]) for count in COUNTS}
    assert isinstance(folder.model, Writer)
    figures = {
        "threads": 1,
        f"MODEL, {folder.architecture.config.width} wide: CPU ms": by_pictures(folder.model, small, 9),
        "768 wide, 12 layers: CPU ms": by_pictures(*published(), 2),
        "what is written": written(folder, store, given.split, given.pictures),
    }
    name = "precision_no_amx" if os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX512_CORE_BF16" else "precision"
    print(save_result(name, "uv run python -m benchmarks.precision MODEL STORE", figures).read_text())


if __name__ == "__main__":
    main()
