"""Score each system on each of its tasks: on Storybook's test scenes, with detected regions and the blind baseline.

The detector is that of `diptych demo`:

    uv run diptych demo
    uv run diptych storybook write --out runs/world --train 6000
    uv run diptych extract runs/world --out runs/store --detector demo/detector/detector
    uv run python -m experiments.systems --store runs/store --out runs/systems

Each system is pre-trained on the web scenes with its small recipe. It is then fine-tuned for each task with its small
recipe and the settings of `TASKS`, which are the same for all systems. Val is scored `LOOKS` times and selects the
weights. Test is scored once for each of three seeds. No system was tuned by itself, so small differences between
them mean nothing.

Retrieval is measured on a sample of queries, each ranked against all images or captions. It is also measured zero-shot
if pre-training has a matching loss. Each score is saved in experiments/results/systems.json at once, so the same
command resumes where it stopped, also on another machine. `--split val` is for choosing settings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.machine import Figure, of_score
from diptych.runs.distributed import ending_children, workers
from diptych.runtime.processes import PROCESSES
from diptych.systems import RECIPES, SYSTEMS
from experiments.claims.arms import Arm, Place, Stage, in_turns, key_of, measured
from experiments.figures import RESULTS, save

NAME = "systems"
COMMAND = "uv run python -m experiments.systems --store runs/store --out runs/systems"
# Steps and batch size of fine-tuning on all training scenes.
TASKS: dict[str, tuple[int, int]] = {
    "caption": (400, 32),
    "vqa": (2400, 64),
    "vcr": (1500, 64),
    "referring": (800, 32),
    "nlvr": (1200, 64),
    "retrieval": (1600, 16),
}
PRETRAIN = (2400, 64)  # steps and batch size; with batches of 32, VQA learns much later (experiments/LOG.md)
LOOKS = 8  # validations during a training
ZERO_SHOT = "retrieval, zero-shot"
MATCHING = ("image-bert", "tden")  # systems whose pre-training learns to match images and texts
SHOWN = {
    "caption": ("CIDEr", "BLEU-4"),
    "vqa": ("accuracy", "accuracy yes/no", "accuracy number", "accuracy other"),
    "vcr": ("Q->A", "QA->R", "Q->AR"),
    "referring": ("accuracy",),
    "nlvr": ("accuracy",),
    "retrieval": ("image retrieval R@1", "image retrieval R@10", "text retrieval R@1", "text retrieval R@10"),
}


def arms(systems: Sequence[str], tasks: Sequence[str]) -> Iterator[tuple[str, str, Arm]]:
    """Yield the title of each row, its system, and its arm (how the model is trained)."""
    for system in systems:
        start = Stage(f"{system}/small/pretrain", _length(*PRETRAIN))
        if system in MATCHING and "retrieval" in tasks:
            yield ZERO_SHOT, system, Arm(start, "retrieval")
        for task in tasks:
            if f"{system}/small/{task}" in RECIPES:
                steps, batch = TASKS[task]
                own = (*_length(steps, batch), f"training.validate_every={steps // LOOKS}", "data.records=null")
                yield task, system, Arm(start.then(f"{system}/small/{task}", *own), task)


def _length(steps: int, batch: int) -> tuple[str, ...]:
    return f"training.steps={steps}", f"training.batch={batch}", f"training.checkpoint_every={steps}"


@dataclass(frozen=True)
class Round:
    """The scores of one run. `key` is a hash of its recipes, so that scores of changed recipes are not mixed with
    them."""

    key: str
    row: str
    system: str
    seed: int
    scores: dict[str, Figure]


def committed() -> dict[str, Any]:
    path = RESULTS / f"{NAME}.json"
    figures: dict[str, Any] = json.loads(path.read_text("utf-8"))["figures"] if path.exists() else {"rounds": []}
    return figures


def kept(rounds: Iterable[Mapping[str, Any]], place: Place) -> Iterator[Round]:
    """Yield the saved scores whose recipes have not changed since."""
    today = {(row, system): arm for row, system, arm in arms(list(SYSTEMS), list(TASKS))}
    for found in (Round(**one) for one in rounds):
        arm = today.get((found.row, found.system))
        if arm is not None and found.key == key_of(arm.last, found.seed, place):
            yield found


def table(rounds: Iterable[Round]) -> dict[str, Any]:
    """Return the scores over the seeds as {row: {system: {score: figure}}}."""
    cells: dict[tuple[str, str], list[Round]] = {}
    for one in rounds:
        cells.setdefault((one.row, one.system), []).append(one)
    figures: dict[str, Any] = {}
    for (row, system), found in cells.items():
        scores = {name: over_seeds([one.scores[name] for one in found]) for name in found[0].scores}
        figures.setdefault(row, {})[system] = scores
    return figures


def over_seeds(found: Sequence[Figure]) -> Figure:
    """Return the mean, the lowest and the highest value. A single value keeps its own interval."""
    values = [figure["value"] for figure in found]
    if len(values) == 1:
        return found[0]
    spread = {"value": round(fmean(values), 1), "low": min(values), "high": max(values), "seeds": len(values)}
    return spread | {name: found[0][name] for name in ("blind", "ceiling") if name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=PROCESSES, help="runs at once, with one thread each")
    parser.add_argument("--split", default="test", help="split to score; only scores of test are saved")
    given = parser.parse_args()
    place = Place((("detected", str(given.store)),), str(given.out))
    rounds = list(kept(committed()["rounds"], place)) if given.split == "test" else []
    scored = {(one.row, one.system, one.seed) for one in rounds}
    rows = in_turns(arms(given.systems, given.tasks), lambda row: row[1])
    jobs = [(*row, seed) for seed in range(given.seeds) for row in rows if (row[0], row[1], seed) not in scored]
    with workers(given.processes) as pool, ending_children():
        running = {pool.submit(measured, *job[2:], place, given.split): job for job in jobs}
        for done in as_completed(running):
            row, system, arm, seed = running[done]
            found = done.result()
            scores = {name: of_score(found[name]) for name in SHOWN[arm.task] if name in found}
            rounds.append(Round(key_of(arm.last, seed, place), row, system, seed, scores))
            print(system, row, f"seed {seed}", scores, flush=True)
            if given.split == "test":
                known = {"pre-training steps": PRETRAIN[0], "rounds": [asdict(one) for one in rounds]}
                save(NAME, COMMAND, known | table(rounds))


if __name__ == "__main__":
    main()
