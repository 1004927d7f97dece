"""Measure what images add on small sets of photographs: a model, a control without images, and the blind baseline.

    uv run python -m experiments.small_sets vqa --store STORE --out OUT --name daquar --keep

Each model is trained with the recipe SYSTEM/photos/TASK from random weights, on one thread. Its control is trained in
the same way on blank regions. Val selects the weights, and test is scored once. The gain is the model's score minus the
control's on the same images, with a paired bootstrap interval. The blind baseline is fitted to the training texts. If
the command is stopped, repeat it to resume.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from diptych import compare, finetune
from diptych.core.folders import INNER
from diptych.data.store.store import Store
from diptych.runs.distributed import ending_children, workers
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.evaluation.retrieve import Extent
from diptych.runs.folder import ModelFolder, open_model
from diptych.runtime.configs import value_of
from diptych.runtime.files import write_atomically
from diptych.runtime.processes import PROCESSES
from diptych.systems import SYSTEMS
from experiments.figures import save
from experiments.thorough import spread

ROW = "row.json"
ABOVE = "accuracy above blind"
QUERIES = 300  # captions that search all test images
Job = tuple[str, int]  # a system and a seed


@dataclass(frozen=True)
class Study:
    """The task, store, folder and settings of the comparison."""

    task: str
    store: str
    out: str
    settings: tuple[str, ...] = ()

    def learn(self, job: Job) -> dict[str, Any]:
        """Train a model and its control; return their scores and the paired gain. A job with results is not computed
        again."""
        system, seed = job
        folder = Path(self.out) / f"{system}-{seed}"
        if not (folder / ROW).exists():
            torch.set_num_threads(1)
            control, seen = (self._trained(folder, system, seed, blank) for blank in (True, False))
            row: dict[str, Any] = {"seen": self._scores(seen), "control": self._scores(control)}
            if self.task != "retrieval":  # recall has no paired gain: it is not a mean over images
                gain = compare(control, seen, self.store)
                row["gain"] = {name: round(getattr(gain, name), 1) for name in ("value", "low", "high")}
            write_atomically(folder / ROW, json.dumps(row, indent=1).encode())
        found: dict[str, Any] = json.loads((folder / ROW).read_text("utf-8"))
        return found

    def _trained(self, folder: Path, system: str, seed: int, blank: bool) -> ModelFolder:
        out = folder / ("control" if blank else "seen")
        settings = ["training.threads=1", "training.loading_threads=1", *self.settings]
        recipe = f"{system}/photos/{self.task}"
        run = finetune(
            self.task, self.store, recipe=recipe, out=out, seed=seed, settings=settings, without_images=blank
        )
        return open_model(run.folder / INNER)

    def _scores(self, model: ModelFolder) -> dict[str, Any]:
        pairs = self.task == "retrieval" and "similarity" not in model.architecture.heads  # scores pairs, no vectors
        extent = Extent(queries=QUERIES, seed=0, asks="pictures") if pairs else None
        _, scores = score_model(model, Store(Path(self.store)), "test", extent=extent)
        return {score.name: score.to_json() for score in scores.scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="vqa, caption or retrieval")
    parser.add_argument("--store", required=True, help="a store with splits train, val and test")
    parser.add_argument("--out", required=True)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=PROCESSES, help="models at once, with one thread each")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    parser.add_argument("--name", help="name of the data set, such as daquar")
    parser.add_argument("--keep", action="store_true", help="write experiments/results/NAME_TASK.json")
    given = parser.parse_args()
    settings = [one.split("=", 1) for one in given.set]
    study = Study(given.task, given.store, given.out, tuple(given.set))
    jobs = [(system, seed) for seed in range(given.seeds) for system in given.systems]
    with workers(given.processes) as pool, ending_children():
        rows = dict(zip(jobs, pool.map(study.learn, jobs), strict=True))
    store = Store(Path(given.store))
    told = {
        "images": {split: len(store.split(split)) for split in ("train", "val", "test")},
        "detector": store.contract.extractor.partition(";")[0],
        **({"settings": {key: value_of(value) for key, value in settings}} if settings else {}),
        "systems": {system: _told([rows[system, seed] for seed in range(given.seeds)]) for system in given.systems},
    }
    named = "" if set(given.systems) == set(SYSTEMS) else f" --systems {' '.join(given.systems)}"
    options = f"--store STORE --out OUT{named} --name {given.name} --keep"
    command = f"uv run python -m experiments.small_sets {given.task} {options}"
    print(save(f"{given.name}_{given.task}", command, told) if given.keep else json.dumps(told, indent=1))


def _told(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the scores over the seeds with the blind baseline, and for each seed the gains over the control and over
    the blind baseline with their intervals."""
    first = rows[0]["seen"]
    told: dict[str, Any] = {
        f"{name}, {arm}": spread([row[arm][name]["value"] for row in rows])
        | ({"blind": round(first[name]["blind"], 1)} if first[name].get("blind") is not None else {})
        for name in first
        for arm in ("seen", "control")
    }
    for seed, row in enumerate(rows):
        if "gain" in row:
            told[f"gain, seed {seed}"] = row["gain"]
        if ABOVE in row["seen"]:
            value, (low, high) = row["seen"][ABOVE]["value"], row["seen"][ABOVE]["interval"]
            told[f"above blind, seed {seed}"] = {"value": round(value, 1), "low": round(low, 1), "high": round(high, 1)}
    return told


if __name__ == "__main__":  # imported by name: other processes cannot import __main__
    import_module("experiments.small_sets").main()
