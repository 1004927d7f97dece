"""Measure what training Fast R-CNN is worth: VL-BERT from pixels on Storybook, with this network trained or frozen.

    uv run diptych storybook detector --out runs/faster --faster-rcnn resnet18_fpn
    uv run python -m experiments.end_to_end --store runs/store --detector runs/faster/detector --out runs/end_to_end

The store is that of `experiments.claims`: 6,000 labelled scenes with detected boxes. Both arms pre-train on the web
scenes (`vl-bert/small/end-to-end`), then fine-tune on the referring expressions of all labelled scenes. Steps, seeds,
objectives and learning rates are equal, but in the frozen arm the network's learning rate is 0. Both networks start
from the ResNet-18 of a briefly trained Faster R-CNN, with stem and stage 1 frozen. The authors' network was pre-trained
on Visual Genome. The test split is scored once. The blind baseline predicts a box from the words and the boxes alone,
by statistics of the training split. If the command is stopped, repeat it to resume.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.console import Console

from diptych.data.store.store import Store
from diptych.models.system import NETWORK
from diptych.runs.distributed import workers
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.run import FinishedRun, run
from diptych.runs.start import fit_to
from diptych.runtime.files import write_atomically
from diptych.runtime.processes import PROCESSES
from diptych.systems import find_recipe
from experiments.figures import save
from experiments.thorough import spread

FROZEN, LEARNING = "frozen", "learning"
SHARE = 0.25  # the network's learning rate relative to the rest
SEEN_CLASSES = "objectives.seen_classes=1"
BATCH = 16
SCORED = "scores.json"


@dataclass(frozen=True)
class Arm:
    name: str
    seed: int
    store: str
    detector: str
    out: str
    pretrain_steps: int
    steps: int

    @property
    def folder(self) -> Path:
        return Path(self.out) / f"{self.name}-{self.seed}"


def trained(arm: Arm) -> FinishedRun:
    """Pre-train an arm, then fine-tune it on referring expressions, on one thread."""
    torch.set_num_threads(1)
    store, quiet = Store(Path(arm.store)), Console(quiet=True)
    share = {NETWORK: 0.0 if arm.name == FROZEN else SHARE}
    own = [
        f"optimizer.lr_multipliers={json.dumps(share)}",
        f"training.seed={arm.seed}",
        "training.threads=1",
        SEEN_CLASSES,
    ]
    own += [f"training.batch={BATCH}", "training.validate_every=null"]
    from_detector = (f"network_init={arm.detector}", "model.network_frozen=2", "data.pixels_shorter=160")
    whole = find_recipe(
        "vl-bert/small/end-to-end", [*own, *from_detector, f"training.steps={arm.pretrain_steps}", "data.split=web"]
    )
    start = run(whole, store, arm.folder / "pretrain", console=quiet).model
    recipe = fit_to(find_recipe("vl-bert/small/referring"), start)
    recipe = recipe.override([*own, f"training.steps={arm.steps}"])
    return run(recipe, store, arm.folder / "referring", start, quiet)


def scored(arm: Arm) -> dict[str, Any]:
    kept, model = arm.folder / SCORED, trained(arm).model  # raises if the folder has another recipe's run
    if not kept.exists():
        _, scores = score_model(model, Store(Path(arm.store)), "test")
        write_atomically(kept, (json.dumps(scores.to_json(), indent=1) + "\n").encode())
    found: dict[str, Any] = json.loads(kept.read_text("utf-8"))["scores"]["accuracy"]
    log = [json.loads(line) for line in (arm.folder / "referring" / "metrics.jsonl").read_text("utf-8").splitlines()]
    classes = [row["losses"]["seen_region_class"] for row in log if "losses" in row][-10:]
    return found | {"classes": mean(classes)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--detector", required=True, help="the detector of `diptych storybook detector --faster-rcnn`")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pretrain-steps", type=int, default=400)
    parser.add_argument("--steps", type=int, default=1400)
    chosen = parser.parse_args()
    arms = [
        Arm(name, seed, chosen.store, chosen.detector, chosen.out, chosen.pretrain_steps, chosen.steps)
        for seed in range(chosen.seeds)
        for name in (FROZEN, LEARNING)
    ]
    figures: dict[str, Any] = {
        "seeds": chosen.seeds, "pre-training steps": chosen.pretrain_steps, "fine-tuning steps": chosen.steps,
    }  # fmt: skip
    with workers(PROCESSES) as pool:
        found = dict(zip(arms, pool.map(scored, arms), strict=True))
    for name in (FROZEN, LEARNING):
        rows = [row for arm, row in found.items() if arm.name == name]
        figures[name] = {
            "referring accuracy": spread([row["value"] for row in rows]) | {"blind": round(rows[0]["blind"], 1)},
            "classes from pixels, nats": round(mean(row["classes"] for row in rows), 3),
        }
    figures["rounds"] = [
        {"arm": arm.name, "seed": arm.seed, "referring accuracy": round(row["value"], 1)} for arm, row in found.items()
    ]
    command = "uv run python -m experiments.end_to_end --store runs/store --detector DETECTOR --out runs/end_to_end"
    command += f" --seeds {chosen.seeds}"
    print(json.dumps(figures, indent=1), save("end_to_end", command, figures))


if __name__ == "__main__":  # imported by name: other processes cannot import __main__
    import_module("experiments.end_to_end").main()
