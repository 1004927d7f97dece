"""Each system with each task it can: what it scores on Storybook's test scenes, in detected regions, beside the blind.

    uv run diptych demo                                                          # the detector
    uv run diptych storybook write runs/world --train 6000
    uv run diptych extract runs/world runs/store --detector demo/detector/detector
    uv run python -m experiments.systems --store runs/store --out runs/systems

Every system is pre-trained on the web scenes by its small recipe, then fine-tuned for each task by its small recipe and
the settings of `TASKS`, which are the same for all systems; val, looked at a few times, chooses the weights, and test
is scored once, by three seeds. The systems are not tuned against each other, so small differences between them say
nothing. Retrieval ranks exactly for a sample of queries, and zero-shot where pre-training teaches what belongs
together. Scores are kept one by one: the same command goes on where it stopped, `--split val` is for choosing settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from statistics import fmean
from typing import Any

from diptych.models import SYSTEMS
from diptych.processes import PROCESSES
from diptych.recipes import RECIPES
from diptych.runs.distributed import ending_children, workers
from experiments.claims.arms import Arm, Place, Stage, in_turns, measured
from experiments.figures import Figure, of_score, save

# Of fine-tuning, on all scenes of train: steps, batch.
TASKS: dict[str, tuple[int, int]] = {
    "caption": (400, 32),
    "vqa": (2400, 64),
    "vcr": (1500, 64),
    "referring": (800, 32),
    "nlvr": (1200, 64),
    "retrieval": (1600, 16),
}
PRETRAIN = (2400, 64)  # in batches of 32 questions are learnt much later afterwards (docs/log.md)
LOOKS = 8  # at val
ZERO_SHOT = "retrieval, zero-shot"
MATCHING = ("image-bert", "tden")  # whose pre-training teaches which text belongs to a picture
SHOWN = {
    "caption": ("CIDEr", "BLEU-4"),
    "vqa": ("accuracy", "accuracy yes/no", "accuracy number", "accuracy other"),
    "vcr": ("Q->A", "QA->R", "Q->AR"),
    "referring": ("accuracy",),
    "nlvr": ("accuracy",),
    "retrieval": ("image retrieval R@1", "image retrieval R@10", "text retrieval R@1", "text retrieval R@10"),
}


def arms(systems: Sequence[str], tasks: Sequence[str]) -> Iterator[tuple[str, str, Arm]]:
    """What a row is called, its system, and how it is trained."""
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


def over_seeds(found: Sequence[Figure]) -> Figure:
    """The mean, the least and the most; of one seed its own interval."""
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
    parser.add_argument("--processes", type=int, default=PROCESSES, help="runs at once, a thread each")
    parser.add_argument("--split", default="test", help="scored split; figures of any other are printed alone")
    given = parser.parse_args()
    place = Place((("detected", str(given.store)),), str(given.out))
    figures: dict[str, Any] = {"pre-training steps": PRETRAIN[0]}
    command = "uv run python -m experiments.systems --store runs/store --out runs/systems"
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    rows = in_turns(arms(given.systems, given.tasks), lambda row: row[1])
    jobs = [(*row, seed) for seed in range(given.seeds) for row in rows]
    with workers(given.processes) as pool, ending_children():
        running = {pool.submit(measured, arm, seed, place, given.split): job for *job, arm, seed in jobs}
        for done in as_completed(running):
            row, system = running[done]
            found = cells.setdefault((row, system), [])
            found.append(done.result())
            here = {
                name: over_seeds([of_score(scores[name]) for scores in found])
                for name in SHOWN[row.partition(",")[0]]
                if name in found[0]
            }
            print(system, row, here, flush=True)
            figures.setdefault(row, {})[system] = here
            if given.split == "test":
                save("systems", command, figures)


if __name__ == "__main__":
    main()
