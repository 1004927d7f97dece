"""Whether pre-training helps captions of photographs: a claim of Unified VLP on a real set, with small models.

    uv run diptych data flickr8k FLICKR8K --out flickr8k.json
    uv run diptych extract flickr8k.json store --detector DETECTOR --region-selection image-bert-36
    uv run python -m experiments.flickr8k --store store --out runs/flickr8k --keep

Flickr8k (Hodosh et al., JAIR 2013) has five captions of each picture and its own splits. `LABELLED` pictures of train
are what fine-tuning is given; all others of train are what pre-training reads, in the paper pairs of the web. Both by
the recipes for photographs; the other arm begins from nothing. Val chooses the weights of fine-tuning, test is scored
once. The same command goes on where it was stopped.

The rules below stood before any of these arms was scored.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from diptych.demo.thorough import spread
from diptych.loading.store import INDEX, Store, StoreWriter
from diptych.processes import PROCESSES
from diptych.runs.distributed import ending_children, workers
from diptych.runs.prepare import in_split
from experiments.claims.arms import Arm, Place, Stage, scores_of
from experiments.figures import Figure, save

LABELLED = 1000
PRETRAINED, SCRATCH = "pre-trained", "from scratch"
REGULAR = ("model.dropout=0.1", "model.attention_dropout=0.1")  # as the recipes for photographs have it
PRETRAIN = (*REGULAR, "training.patience=null", "training.steps=2000", "training.checkpoint_every=500")
TEACH = (*REGULAR, "data.records=null", "training.patience=null", "training.steps=1000", "training.validate_every=200")
START = Stage("unified-vlp/photos/pretrain", small=PRETRAIN)
ARMS = {
    name: Arm(Stage("unified-vlp/photos/caption", after=start, small=TEACH), "caption")
    for name, start in ((PRETRAINED, START), (SCRATCH, None))
}
DIVIDED, RUNS = "store", "runs"  # in the study's folder


def divided(source: Store, out: Path) -> Store:
    """The store with the pictures of train that nothing is taught by as the split web; written once."""
    if not (out / INDEX).exists():
        train = sorted(in_split(source, "train", "--store"), key=lambda index: _place(source.record(index).key))
        web = set(train[: max(0, len(train) - LABELLED)])
        with StoreWriter(out, source.contract, len(source)) as writer:
            for index in range(len(source)):
                record = source.record(index)
                writer.add(replace(record, split="web") if index in web else record)
    return Store(out)


def _place(key: str) -> str:
    """By a hash of the picture's name, so that the division is the same on every machine."""
    return hashlib.sha256(Path(key).stem.encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, type=Path, help="a store of Flickr8k, with its own splits")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=PROCESSES, help="arms at once, a thread each")
    parser.add_argument("--keep", action="store_true", help="write experiments/results/flickr8k.json")
    given = parser.parse_args()
    store = divided(Store(given.store), given.out / DIVIDED)
    place = Place((("detected", str(given.out / DIVIDED)),), str(given.out / RUNS))
    rows = learn(place, given.seeds, given.processes)
    told: dict[str, Any] = {"pictures": {split: len(store.split(split)) for split in ("web", "train", "val", "test")}}
    told |= {"extractor": store.contract.extractor, "seeds": given.seeds}
    told |= {"arms": {name: _told([row for row in rows if row["arm"] == name]) for name in ARMS}, "rounds": rows}
    command = "uv run python -m experiments.flickr8k --store STORE --out OUT --keep"
    print(save("flickr8k", command, told) if given.keep else json.dumps(told, indent=1))


def learn(place: Place, seeds: int, processes: int) -> list[dict[str, Any]]:
    """A row for each arm and seed: its scores on test, and those of the blind."""
    jobs = [(name, seed) for seed in range(seeds) for name in ARMS]
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    with workers(processes) as pool, ending_children():
        running = {pool.submit(scores_of, ARMS[name], seed, place): (name, seed) for name, seed in jobs}
        for done in as_completed(running):
            name, seed = running[done]
            scores, blind = done.result()
            row = rows[name, seed] = {"arm": name, "seed": seed, **scores, "blind": blind}
            print(json.dumps(row), flush=True)
    return [rows[job] for job in jobs]


def _told(rows: Sequence[dict[str, Any]]) -> dict[str, Figure]:
    """Each score over the seeds, beside that of the blind."""
    blind = rows[0]["blind"]
    scores = [name for name in rows[0] if name not in ("arm", "seed", "blind")]
    return {
        name: spread([row[name] for row in rows]) | ({"blind": round(blind[name], 1)} if name in blind else {})
        for name in scores
    }


if __name__ == "__main__":
    main()
