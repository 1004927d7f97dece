"""Run the recipes for your own photographs completely, to measure their scores and how long they take.

    uv run python -m experiments.photographs --data world-store --out runs/out/photographs --keep

The data are drawn scenes made as hard as photographs (`experiments.hard_world`). Each system pre-trains and fine-tunes
as docs/photographs.md shows, on one thread. Training stops early if validation does not improve. TDEN has a third of
its recipe's steps. Val selects the weights, and test is scored once. If the command is stopped, repeat it to resume.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.machine import of_score
from diptych.data.store.store import Store
from diptych.runs.distributed import workers
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.folder import ModelFolder
from diptych.runs.run import FinishedRun, run
from diptych.runs.start import fit_to
from diptych.runtime.files import write_atomically
from diptych.runtime.processes import PROCESSES
from diptych.systems import find_recipe
from experiments.figures import save
from experiments.hard_world import STORE, HardWorld

ROW = "row.json"
CHAINS = {"unified-vlp": "caption", "tden": "retrieval"}
SHORTER = {"tden": ["training.steps=2000"]}  # instead of 6,000, which would take 75 minutes


@dataclass(frozen=True)
class Photographs(HardWorld):
    pictures: int = 6000
    test: int = 600
    settings: tuple[str, ...] = ()


def learn(plan: Photographs, system: str) -> dict[str, Any]:
    """Pre-train, fine-tune and score one system; return its results. A system with results is not trained again. Called
    in a process of its own."""
    folder, store = Path(plan.out) / system, Store(Path(plan.out) / STORE)
    if not (folder / ROW).exists():
        torch.set_num_threads(1)
        own = ["training.threads=1", f"training.seed={plan.seed}", *SHORTER.get(system, []), *plan.settings]
        before, pretrained = _stage(plan, f"{system}/photos/pretrain", own, folder / "pretrain")
        task = CHAINS[system]
        taught, learnt = _stage(plan, f"{system}/photos/{task}", own, folder / task, before.model)
        _, scores = score_model(taught.model, store, "test")
        test: dict[str, Any] = {name: of_score(score) for name, score in scores.to_json()["scores"].items()}
        row = {"pre-training": pretrained, task: learnt | test}
        write_atomically(folder / ROW, json.dumps(row, indent=1).encode())
    found: dict[str, Any] = json.loads((folder / ROW).read_text("utf-8"))
    return found


def _stage(
    plan: Photographs, name: str, own: list[str], out: Path, start: ModelFolder | None = None
) -> tuple[FinishedRun, dict[str, float]]:
    store, recipe = Store(Path(plan.out) / STORE), find_recipe(name)
    began = time.process_time()
    done = run((fit_to(recipe, start) if start else recipe).override(own), store, out, start, Console(quiet=True))
    told = {"steps": done.result.step, "CPU minutes": round((time.process_time() - began) / 60, 1)}
    return done, told | {"best on val after": done.result.best_step or done.result.step}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a store of drawn scenes with splits train, val and test")
    parser.add_argument("--out", required=True)
    parser.add_argument("--systems", nargs="+", choices=CHAINS, default=[*CHAINS])
    for name in ("pictures", "test", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Photographs, name))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    parser.add_argument("--keep", action="store_true", help="write experiments/results/photographs.json")
    given = parser.parse_args()
    plan = Photographs(
        given.data, given.out, pictures=given.pictures, test=given.test, seed=given.seed, settings=tuple(given.set)
    )
    plan.made()
    with workers(min(PROCESSES, len(given.systems))) as pool:
        rows = dict(zip(given.systems, pool.map(learn, [plan] * len(given.systems), given.systems), strict=True))
    figures = {"asked": {"pictures": plan.pictures, "test": plan.test, "seed": plan.seed}, "systems": rows}
    command = "uv run python -m experiments.photographs --data STORE --out OUT --keep"
    print(save("photographs", command, figures) if given.keep else json.dumps(figures, indent=1))


if __name__ == "__main__":  # imported by name: other processes cannot import __main__
    import_module("experiments.photographs").main()
