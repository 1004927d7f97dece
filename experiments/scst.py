"""Compare self-critical training with the cross-entropy model that it starts from, over several seeds.

    uv run python -m experiments.scst --model demo/pretrain --data demo/store --out runs/out/scst

For each seed, a captioner is trained by cross-entropy. Two arms continue from it for the same number of steps: one by
self-critical training, one by cross-entropy, because more steps alone could raise a score. All three models are scored
once on the test split. Each result is saved when its arm ends, so a stopped comparison resumes. Any system that
generates captions can be compared: its recipes SYSTEM/small/caption and SYSTEM/small/scst are used.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.console import Console

from benchmarks.machine import Figure
from diptych.core import Record
from diptych.data.store.store import Store
from diptych.metrics.tokenise import tokens_of
from diptych.runs.distributed import workers
from diptych.runs.folder import open_model
from diptych.runs.predict import predict
from diptych.runs.run import run
from diptych.runs.start import fit_to
from diptych.runtime.errors import DataError
from diptych.runtime.files import write_atomically
from diptych.systems import find_recipe
from diptych_world.kinds import names_of_kinds
from experiments.figures import save
from experiments.hallucination import hallucinations, repeated_ngrams
from experiments.thorough import spread

TAUGHT, LONGER, REWARDED = "cross-entropy", "cross-entropy, longer", "self-critical"
ARMS = (TAUGHT, LONGER, REWARDED)
RECIPES_OF = {TAUGHT: "caption", LONGER: "caption", REWARDED: "scst"}
ROW, SAID = "row.json", "said.json"


@dataclass(frozen=True)
class Study:
    """The settings of the comparison, as plain values that can be sent to other processes."""

    model: str  # a pre-trained model folder
    store: str
    out: str
    seeds: int = 3
    taught_steps: int = 400  # steps of cross-entropy before the arms divide
    steps: int = 150  # further steps of each arm
    settings: tuple[str, ...] = ("training.threads=1", "training.validate_every=50", "training.checkpoint_every=50")
    taught_settings: tuple[str, ...] = ("optimizer.kind=adamw", "optimizer.lr=5e-4")
    longer_settings: tuple[str, ...] = ("optimizer.kind=adamw", "optimizer.lr=1e-4", "optimizer.schedule=constant")
    rewarded_settings: tuple[str, ...] = ()

    def folder(self, arm: str, seed: int) -> Path:
        return Path(self.out) / f"{arm.replace(', ', '-').replace(' ', '-')}-{seed}"

    def of_arm(self, arm: str, seed: int) -> tuple[str, ...]:
        own = {TAUGHT: self.taught_settings, LONGER: self.longer_settings, REWARDED: self.rewarded_settings}[arm]
        steps = self.taught_steps if arm == TAUGHT else self.steps
        return (*self.settings, *own, f"training.steps={steps}", f"training.seed={seed}")


def study(plan: Study, processes: int, done: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Run the arms that have no result in `plan.out` yet, and return the figures of all. `done` is called with the
    results of each new arm."""
    for arms in ((TAUGHT,), (REWARDED, LONGER)):
        cells = [(arm, seed) for arm in arms for seed in range(plan.seeds)]
        waiting = [cell for cell in cells if not (plan.folder(*cell) / ROW).exists()]
        with workers(max(1, min(processes, len(waiting)))) as pool:
            for finished in as_completed([pool.submit(run_arm, plan, *cell) for cell in waiting]):
                done(finished.result())
    rows = {(arm, seed): _read(plan.folder(arm, seed) / ROW) for arm in ARMS for seed in range(plan.seeds)}
    return figures(rows, plan.seeds)


def run_arm(plan: Study, arm: str, seed: int) -> dict[str, Any]:
    """Train and score one arm with one seed; return its row of results. Called in a process of its own."""
    torch.set_num_threads(1)
    store, out = Store(Path(plan.store)), plan.folder(arm, seed)
    start = open_model(Path(plan.model) if arm == TAUGHT else plan.folder(TAUGHT, seed))
    recipe = find_recipe(f"{start.architecture.system}/small/{RECIPES_OF[arm]}")
    made = run(fit_to(recipe, start).override(plan.of_arm(arm, seed)), store, out, start, Console(quiet=True))
    predictions, records, task, _ = predict(made.model, store, "test")
    said = {prediction["key"]: prediction["caption"] for prediction in predictions}
    scores = task.score(predictions, records)
    row = {"arm": arm, "seed": seed, "best step": made.result.best_step, "best on val": made.result.best_score}
    row |= {"CIDEr": scores["CIDEr"], "BLEU-4": scores["BLEU-4"]} | about_captions(said, records)
    write_atomically(out / SAID, json.dumps(said, ensure_ascii=False, indent=1).encode())
    write_atomically(out / ROW, json.dumps(row, indent=1).encode())
    return row


def about_captions(said: Mapping[str, str], records: Sequence[Record]) -> dict[str, float]:
    """Return measures that CIDEr and BLEU do not show, such as repetitions and objects that are not in the image.
    Shares are in percent."""
    there = {record.key: {thing.kind for thing in record.objects} for record in records if record.objects}
    if not there:
        raise DataError(
            "no record lists the objects of its picture, so the objects that captions name cannot be checked; pass a "
            "store that was extracted from a folder of `diptych storybook write`"
        )
    found = hallucinations({key: said[key] for key in there}, there, names_of_kinds())
    return {
        "words a caption": mean(len(tokens_of(caption)) for caption in said.values()),
        "different captions": 100 * len(set(said.values())) / len(said),
        "repeated bigrams": 100 * repeated_ngrams(list(said.values()), 2),
        "repeated 4-grams": 100 * repeated_ngrams(list(said.values()), 4),
        "objects named a caption": found.named,
        "objects named that are not there": 100 * found.per_object,
        "captions with such an object": 100 * found.per_caption,
        "kinds there that are named": 100 * found.recall,
    }


def figures(rows: Mapping[tuple[str, int], Mapping[str, Any]], seeds: int) -> dict[str, Any]:
    """Return each arm's scores as mean, lowest and highest, and the gains of the two later arms over their starting
    model, paired by seed."""
    told: dict[str, Any] = {arm: dict(_spread_of(rows, arm, seeds)) for arm in ARMS}
    for arm in (LONGER, REWARDED):
        for score in ("CIDEr", "BLEU-4"):
            gains = [rows[arm, seed][score] - rows[TAUGHT, seed][score] for seed in range(seeds)]
            told.setdefault(f"gain of {arm}", {})[score] = spread(gains)
    return told | {"rounds": [dict(row) for row in rows.values()]}


def _spread_of(rows: Mapping[tuple[str, int], Mapping[str, Any]], arm: str, seeds: int) -> Iterator[tuple[str, Figure]]:
    for score in rows[arm, 0]:
        if score not in ("arm", "seed", "best step", "best on val"):
            yield score, spread([rows[arm, seed][score] for seed in range(seeds)])


def _read(path: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a pre-trained model folder, or the folder of its run")
    parser.add_argument("--data", required=True, help="a store of Storybook, with its true objects")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seeds", type=int, default=Study.seeds)
    parser.add_argument("--taught-steps", type=int, default=Study.taught_steps)
    parser.add_argument("--steps", type=int, default=Study.steps)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all arms")
    parser.add_argument("--set-rewarded", action="append", default=[], metavar="KEY=VALUE", help="for SCST alone")
    given = parser.parse_args()
    plan = Study(
        model=given.model, store=given.data, out=given.out, seeds=given.seeds, taught_steps=given.taught_steps,
        steps=given.steps, settings=(*Study.settings, *given.set), rewarded_settings=tuple(given.set_rewarded),
    )  # fmt: skip
    told = study(plan, os.cpu_count() or 1, lambda row: print(json.dumps(row), flush=True))
    system = open_model(Path(given.model)).architecture.system
    asked = {"system": system, "taught_steps": plan.taught_steps, "steps": plan.steps, "seeds": plan.seeds}
    command = "uv run python -m experiments.scst --model PRETRAINED --data STORE --out OUT"
    print(save(f"scst_{system.replace('-', '_')}", command, asked | told))


if __name__ == "__main__":  # imported by name: other processes cannot import __main__
    import_module("experiments.scst").main()
