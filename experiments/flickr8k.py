"""Test on photographs whether pre-training helps captioning: a claim of Unified VLP, on Flickr8k with small models.

    uv run diptych data flickr8k FLICKR8K --out flickr8k.json
    uv run diptych extract flickr8k.json --out store --detector DETECTOR \\
        --region-selection image-bert-36 --image-feature MAP
    uv run python -m experiments.flickr8k --store store --out runs/flickr8k --keep

The committed results use YOLOX-nano as DETECTOR and its last feature map as MAP; docs/encoders.md shows how to make
both. Flickr8k (Hodosh et al., JAIR 2013) has five captions per image and its own splits. Fine-tuning reads `LABELLED`
training images. Pre-training reads all other training images; in the paper it reads pairs from the web. The other arm
starts from random weights. Both arms use the recipes for photographs, with fewer steps. Val selects the weights of
fine-tuning, and test is scored once. If the command is stopped, repeat it to resume.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.machine import Figure
from diptych.core.folders import DETECTOR
from diptych.data.store.store import INDEX, Store, StoreWriter
from diptych.runs.distributed import ending_children, workers
from diptych.runs.predict import in_split
from diptych.runtime.processes import PROCESSES
from experiments.claiming import claim
from experiments.claims.arms import Arm, Place, Stage, measured
from experiments.figures import save
from experiments.thorough import spread

LABELLED = 1000
PRETRAINED, SCRATCH = "pre-trained", "from scratch"
REGULAR = ("model.dropout=0.1", "model.attention_dropout=0.1")  # values of the recipes for photographs
PRETRAIN = (*REGULAR, "training.patience=null", "training.steps=2000", "training.checkpoint_every=500")
TEACH = (*REGULAR, "data.records=null", "training.patience=null", "training.steps=1000", "training.validate_every=200")
START = Stage("unified-vlp/photos/pretrain", small=PRETRAIN)
ARMS = {
    name: Arm(Stage("unified-vlp/photos/caption", after=start, small=TEACH), "caption")
    for name, start in ((PRETRAINED, START), (SCRATCH, None))
}
DIVIDED, RUNS = "store", "runs"  # subfolders of the study's folder
Scores = dict[str, dict[str, Any]]  # by name, in the form of `Score.to_json`


@dataclass(frozen=True)
class Photographs:
    """The store of Flickr8k, and the study's folder `out`."""

    store: str
    out: str

    def divided(self) -> Store:
        """Return the store in which training images that are not labelled form the split web. It is written at the
        first call."""
        claim(self, self.out)
        source, out = Store(Path(self.store)), Path(self.out) / DIVIDED
        if not (out / INDEX).exists():
            if (detector := source.folder / DETECTOR).is_dir():
                shutil.copytree(detector, out / DETECTOR, dirs_exist_ok=True)
            train = sorted(in_split(source, "train", "--store"), key=lambda index: place_of(source.record(index).key))
            web = set(train[: max(0, len(train) - LABELLED)])
            with StoreWriter(out, source.contract, len(source)) as writer:
                for index in range(len(source)):
                    record = source.record(index)
                    writer.add(replace(record, split="web") if index in web else record)
        return Store(out)


def place_of(key: str) -> str:
    """Return the image's sort key: a hash of its name, so that the division into splits is the same on every
    machine."""
    return hashlib.sha256(Path(key).stem.encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, help="a store of Flickr8k, with its own splits")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=PROCESSES, help="arms at once, with one thread each")
    parser.add_argument("--keep", action="store_true", help="write experiments/results/flickr8k.json")
    given = parser.parse_args()
    store = Photographs(given.store, str(given.out)).divided()
    place = Place((("detected", str(given.out / DIVIDED)),), str(given.out / RUNS))
    found = learn(place, given.seeds, given.processes)
    told: dict[str, Any] = {"pictures": {split: len(store.split(split)) for split in ("web", "train", "val", "test")}}
    detector = store.contract.extractor.partition(";")[0].rpartition(":")[2]
    told |= {"detector": detector.replace("_", "-"), "seeds": given.seeds}
    told |= {name: _told([scores for (arm, _), scores in found.items() if arm == name]) for name in ARMS}
    told["rounds"] = [
        {"arm": arm, "seed": seed} | {name: round(score["value"], 3) for name, score in scores.items()}
        for (arm, seed), scores in found.items()
    ]
    command = "uv run python -m experiments.flickr8k --store STORE --out OUT --keep"
    print(save("flickr8k", command, told) if given.keep else json.dumps(told, indent=1))


def learn(place: Place, seeds: int, processes: int) -> dict[tuple[str, int], Scores]:
    """Train and score all arms. Return their scores on test by arm and seed."""
    jobs = [(name, seed) for seed in range(seeds) for name in ARMS]
    found: dict[tuple[str, int], Scores] = {}
    with workers(processes) as pool, ending_children():
        running = {pool.submit(measured, ARMS[name], seed, place): (name, seed) for name, seed in jobs}
        for done in as_completed(running):
            job = running[done]
            found[job] = done.result()
            print(*job, *(f"{name} {score['value']:.1f}" for name, score in found[job].items()), flush=True)
    return {job: found[job] for job in jobs}


def _told(runs: Sequence[Scores]) -> dict[str, Figure]:
    """Return each score over the seeds, with the blind baseline and the ceiling."""
    return {
        name: spread([run[name]["value"] for run in runs])
        | {bound: round(first[bound], 1) for bound in ("blind", "ceiling") if first.get(bound) is not None}
        for name, first in runs[0].items()
    }


if __name__ == "__main__":
    main()
