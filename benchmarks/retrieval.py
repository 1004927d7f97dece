"""Measure retrieval by scoring pairs: pairs per second, and what a shortlist saves at which loss of R@1.

    uv run python -m benchmarks.retrieval MODEL STORE [--split test] [--pictures N] [--shortlist 20 50] [--threads N]

MODEL is a run of `diptych finetune retrieval` of a system that scores pairs. All pairs of the first N images with their
captions are scored once, in bf16. The rankings with shortlists use the same scores, so any difference comes from the
shortlist. A shortlist's time includes selecting it and scoring its pairs. fp32 is timed on a sample of the pairs, and
bf16 on the same sample.

Writes benchmarks/results/retrieval.json. `--base` adds pairs per second of untrained models of the published size (12
layers, width 768, 100 regions of 2,048 features, 36 words).
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.encoders import BASE, TINY, Sizes, built, prepared
from benchmarks.machine import save_result
from benchmarks.steps import in_turn, seconds, timed
from diptych.core import Record
from diptych.data.store.store import Store
from diptych.runs.evaluation.retrieve import shortlist_cells
from diptych.runs.folder import ModelFolder, open_model
from diptych.runs.predict import in_split
from diptych.systems import SYSTEMS
from diptych.tasks.gallery import Cells, RetrievalGallery, open_table
from diptych.tasks.matching import Retrieval, everything, match_scores, rankings
from diptych.tasks.shortlist import MOST, Shortlister

SAMPLE = 20  # number of images, with all captions, to time fp32 and bf16 on


def fill(task: Retrieval, model: ModelFolder, gallery: RetrievalGallery, cells: Cells, half: bool = True) -> Any:
    table = open_table(gallery, None, "")
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        task.fill(model.model, gallery, table, cells)
    return table


def shortlist(teachers: list[Record], model: ModelFolder, gallery: RetrievalGallery, most: int) -> tuple[Cells, Cells]:
    return Shortlister.of(teachers, model.tokens).choose(gallery, most)


def recalled(task: Retrieval, found: list[dict[str, Any]]) -> dict[str, float]:
    figures = task.score(found, [])
    return {name: round(figures[name], 2) for name in ("text retrieval R@1", "image retrieval R@1", "recall")}


def measure(model: ModelFolder, store: Store, split: str, pictures: int | None, lengths: list[int]) -> dict[str, Any]:
    records: list[Record] = [store.record(index) for index in in_split(store, split, "--split")[:pictures]]
    gallery, config = RetrievalGallery.of(records), model.architecture.config
    words = model.recipe.data.max_words if model.recipe is not None else 20
    task = Retrieval(model.tokens, words, config.max_regions)
    some = RetrievalGallery.of(records[:SAMPLE])
    rates = {
        name: int(np.prod(some.shape)) / seconds(partial(fill, task, model, some, everything(some), half))
        for name, half in (("warm-up", True), ("bf16", True), ("fp32", False))
    }
    took, table = timed(partial(fill, task, model, gallery, everything(gallery)))
    pairs = int(np.prod(gallery.shape))
    exact = recalled(task, rankings(gallery, table))
    trained = model.recipe.data.split if model.recipe is not None else "train"
    teachers = [r for r in (store.record(i) for i in store.split(trained)[:MOST]) if r.captions and r.split != split]
    figures: dict[str, Any] = {
        "pairs a second": {name: round(rate) for name, rate in rates.items() if name != "warm-up"},
        "all pairs": {"pairs": pairs, "seconds": round(took, 2), **exact},
    }
    for most in lengths:
        choosing, short = timed(partial(shortlist, teachers, model, gallery, most))
        cells = shortlist_cells(short)
        scoring = seconds(partial(fill, task, model, gallery, cells))
        through = recalled(task, rankings(gallery, table, among=short))
        figures[f"shortlist of {most}"] = {
            "pairs": sum(map(len, cells)),
            "share of all": round(sum(map(len, cells)) / pairs, 3),
            "seconds": round(choosing + scoring, 2),
            "of them choosing": round(choosing, 2),
            **through,
            "loss of R@1, captions and pictures": [
                round(exact[name] - through[name], 2) for name in ("text retrieval R@1", "image retrieval R@1")
            ],
        }
    return figures


def published(sizes: Sizes) -> dict[str, float]:
    """Return pairs per second of untrained models of the published size. `sizes.pictures` pairs are scored at a
    time."""
    _, batch = prepared(sizes)
    found = {}
    for system in ("vl-bert", "image-bert"):
        whole = built(system, sizes)
        model = SYSTEMS[system].model(whole.config, ("match",)).eval()

        def score(half: bool, model: Any = model) -> None:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
                match_scores(model, batch)

        taken = in_turn({"bf16": lambda: score(True), "fp32": lambda: score(False)}, sizes.rounds, seconds)
        found |= {f"{system}, {name}": round(sizes.pictures / median(all_), 1) for name, all_ in taken.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("store", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--pictures", type=int, default=None)
    parser.add_argument("--shortlist", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--base", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="test this program; nothing is written")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    model = open_model(given.model)
    figures = {"system": model.architecture.system, "threads": given.threads}
    figures |= measure(model, Store(given.store), given.split, given.pictures, given.shortlist)
    if given.base:
        figures["pairs a second, published size"] = published(TINY if given.tiny else BASE)
    print(figures)
    if not given.tiny:
        shown = f"python -m benchmarks.retrieval {given.model.name} {given.store.name} --split {given.split}"
        print(save_result("retrieval", shown, figures))


if __name__ == "__main__":
    main()
