"""Each system with each task it can: what it scores on Storybook's test scenes, in detected regions, beside the blind.

    uv run diptych demo                                   # the world, and what the detector found in it
    uv run python -m experiments.systems --store demo/store --out runs/systems

Every system is pre-trained on the web scenes for the same number of steps, then fine-tuned for each task on all
labelled scenes for the same number of steps, at one learning rate, without a look at val: the systems are not tuned
against each other, so small differences between them say nothing. Statements and choices, whose loss stays where it
begins for hundreds of steps, are taught three times as long as well. Each figure stands beside its blind baseline.
Retrieval ranks exactly for a sample of queries, and zero-shot where pre-training teaches what belongs together. Cells
are kept one by one: the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diptych.demo.comparison import Cell, train_cell
from diptych.demo.demo import DemoConfig, pretrain, pretraining, sizes
from diptych.evaluation.evaluate import score_model
from diptych.evaluation.retrieve import Extent
from diptych.files import write_atomically
from diptych.loading.store import Store
from diptych.models import SYSTEMS
from diptych.processes import PROCESSES
from diptych.recipes import RECIPES
from diptych.runs.distributed import workers
from diptych.runs.folder import open_model
from experiments.figures import of_score, save

TASKS: tuple[str, ...] = ("caption", "vqa", "vcr", "referring", "nlvr", "retrieval")
LATE: tuple[str, ...] = ("vcr", "nlvr")
ZERO_SHOT, PRE_TRAINED, LONGER = "zero-shot", "pre-trained", "three times the steps"
RATE = 2e-3
QUERIES = 50  # pictures, and captions, whose ranking among all is exact
SHOWN = {
    "caption": ("CIDEr", "BLEU-4"),
    "vqa": ("accuracy", "accuracy yes/no"),
    "vcr": ("Q->A", "QA->R", "Q->AR"),
    "referring": ("accuracy",),
    "nlvr": ("accuracy",),
    "retrieval": ("image retrieval R@1", "image retrieval R@10", "text retrieval R@1", "text retrieval R@10"),
}
SCORED = "scores.json"


def cells(store: Path, out: Path, demo: DemoConfig, steps: int, systems: Sequence[str]) -> Iterator[Cell]:
    for system in systems:
        start = pretrain(pretraining(demo, demo.seed, system), Store(store), out / system / "pretrain")
        own = (*sizes(demo, system), "training.validate_every=null", "training.threads=1")
        zero_shot = Cell(
            "retrieval", ZERO_SHOT, demo.train, demo.seed, 0.0, str(start), str(store), str(out / system), (), system
        )
        if {"match", "similarity"} & set(open_model(start).architecture.heads):
            yield zero_shot
        for task in TASKS:
            if f"{system}/small/{task}" in RECIPES:
                batch = f"training.batch={16 if task == 'vcr' else 32}"
                for arm, times in {PRE_TRAINED: steps, LONGER: 3 * steps if task in LATE else 0}.items():
                    settings = (*own, batch, f"training.steps={times}", f"training.checkpoint_every={steps}")
                    if times:
                        yield replace(zero_shot, task=task, arm=arm, lr=RATE, settings=settings)


def scored(cell: Cell) -> dict[str, Any]:
    """Figures of the test split, looked at once; in a process of its own."""
    kept, store = cell.folder / SCORED, Store(Path(cell.store))
    cell.folder.mkdir(parents=True, exist_ok=True)
    # Another recipe's run there is refused.
    model = open_model(Path(cell.start or "")) if cell.arm == ZERO_SHOT else train_cell(cell, store).model
    if not kept.exists():
        extent = Extent(queries=QUERIES) if cell.task == "retrieval" and "match" in model.model.heads else None
        _, scores = score_model(model, store, "test", task=cell.task, extent=extent)
        write_atomically(kept, (json.dumps(scores.to_json(), indent=1) + "\n").encode())
    found: dict[str, Any] = json.loads(kept.read_text("utf-8"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS))
    parser.add_argument("--pretrain-steps", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=800)
    chosen = parser.parse_args()
    demo = DemoConfig(pretrain_steps=chosen.pretrain_steps)
    figures: dict[str, Any] = {"pre-training steps": chosen.pretrain_steps, "fine-tuning steps": chosen.steps}
    command = "uv run python -m experiments.systems --store demo/store --out runs/systems"
    waiting = list(cells(chosen.store, chosen.out, demo, chosen.steps, chosen.systems))
    with workers(PROCESSES) as pool:
        for cell, found in zip(waiting, pool.map(scored, waiting), strict=True):
            here = {name: of_score(found["scores"][name]) for name in SHOWN[cell.task] if name in found["scores"]}
            shown = cell.task if cell.arm == PRE_TRAINED else f"{cell.task}, {cell.arm}"
            print(cell.system, shown, here, flush=True)
            figures.setdefault(shown, {})[cell.system] = here
            save("systems", command, figures)


if __name__ == "__main__":
    main()
