"""Measure how cost grows: steps with their inputs, runs with their processes, stores and galleries with their size.

    OMP_WAIT_POLICY=passive uv run python -m benchmarks.scale [PART...]     some of: step processes store gallery
    uv run python -m benchmarks.scale largest       the store of 10,000,000 records, which takes ten minutes
    uv run python -m benchmarks.scale page          docs/scale.md and its plots, from saved figures

- step: Unified VLP at the published width with 2 layers, on 2 images of 36 regions with 20 words. One of these numbers
  changes at a time. Measures CPU seconds of forward and backward (fp32, one thread), and the memory of activations.
- processes: samples per second of a small model with 1, 2 and 4 processes over gloo, on the cores of this machine.
- store: 1,000 to 1,000,000 records of 10 regions with 64 features, each size in its own process. Above 10,000 records,
  further shards are links to the first ones, so their bytes are always in memory. `MiB` leaves out the pages of mapped
  files, which the processes of a machine share and the system can free. Each record is read once (the first time, its
  checksum is verified), except at 1,000 records.
- gallery: 1,000 to 1,000,000 vectors of 128 dimensions. Finds the 10 nearest to a query by products, on one thread.

Writes benchmarks/results/scale.json after each part. A part takes less than four minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import psutil
import torch
from torch import Tensor

from benchmarks.encoders import BASE, Sizes, built, prepared
from benchmarks.loader import AsIs, captions
from benchmarks.machine import RESULTS, save_result
from benchmarks.steps import in_turn, seconds
from diptych.core import Batch, FeatureContract, Record, Regions
from diptych.data.store.loader import Loader
from diptych.data.store.store import Store, StoreWriter
from diptych.objectives import OneForward
from diptych.tasks.two_towers import TowerGallery
from diptych.training import OptimizerConfig, TrainingConfig, train

COMMAND = "OMP_WAIT_POLICY=passive uv run python -m benchmarks.scale"
SIZES = replace(BASE, pictures=2, regions=36, words=20, hidden=3, layers=2, vocabulary=2000)
CHANGES: dict[str, tuple[int, ...]] = {
    "regions": (36, 50, 100), "words": (10, 20, 40, 80), "pictures": (1, 2, 4, 8), "layers": (1, 2, 4),
}  # fmt: skip
ROUNDS, PROCESSES, STORES = 3, (1, 2, 4), (1_000, 10_000, 100_000, 1_000_000)
SMALL = replace(BASE, pictures=64, regions=20, words=12, hidden=2, width=128, layers=2, heads=4, ffn=512,
                vocabulary=2000, classes=50, features=128)  # fmt: skip
BATCH, BATCHES = 64, 50


# ---- a step ------------------------------------------------------------------------------------------


def step_of(sizes: Sizes) -> tuple[Callable[[], object], Callable[[], int]]:
    """Return a function for forward and backward, and one for the bytes that forward keeps for backward, without
    weights."""
    update, batch = prepared(sizes)
    model = built("unified-vlp", sizes)

    def forward() -> Tensor:
        (losses,) = list(update.losses(model, batch))
        return torch.stack(list(losses.values())).sum()

    def kept() -> int:
        weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        found: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                found[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            total = forward()  # stays alive until the bytes are counted, so that no address is used twice
        del total
        return sum(found.values())

    return lambda: forward().backward(), kept  # type: ignore[no-untyped-call]


def steps() -> dict[str, Any]:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for name, values in CHANGES.items():
        made = {value: step_of(replace(SIZES, **{name: value})) for value in values}
        taken = in_turn({str(value): step for value, (step, _) in made.items()}, ROUNDS)
        found[name] = {
            str(value): {"CPU seconds": round(median(taken[str(value)]), 3), "MiB kept": round(kept() / 2**20, 1)}
            for value, (_, kept) in made.items()
        }
    return found


# ---- processes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Same:
    """A loader that returns the same batch in every step, divided among the parts."""

    update: OneForward
    batch: Batch

    def at(self, step: int, part: int = 0, parts: int = 1) -> Any:
        rows = range(part, len(self.batch), parts)
        return self.batch if parts == 1 else _rows(self.batch, rows)


@dataclass(frozen=True)
class Always:
    update: OneForward

    def at(self, step: int) -> OneForward:
        return self.update


def _rows(batch: Batch, rows: Sequence[int]) -> Batch:
    taken: dict[str, Any] = {}
    for name, value in vars(batch).items():
        if isinstance(value, Tensor):
            taken[name] = value[list(rows)]
        elif isinstance(value, list):
            taken[name] = [value[row] for row in rows]
    return replace(batch, **taken)


def one_of_them(folder: Path) -> None:
    """Train in one of the processes that torchrun started."""
    torch.manual_seed(0)
    update, batch = prepared(SMALL)
    config = TrainingConfig(steps=12, batch=SMALL.pictures, log_every=3, checkpoint_every=1000, threads=1,
                            precision="fp32", loading_threads=0, device="cpu")  # fmt: skip
    model, batches = built("unified-vlp", SMALL), Same(update, batch)
    train(model, Always(update), batches, optimizer=OptimizerConfig(), training=config, folder=folder)


def processes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as root:
        for count in PROCESSES:
            folder = Path(root, str(count))
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count),
                       "-m", "benchmarks.scale", "rank", str(folder)]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
            lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            speeds = [line["samples_per_second"] for line in lines[1:]]
            found[str(count)] = {"samples a second": round(median(speeds), 1)}
    return found


# ---- stores and galleries ----------------------------------------------------------------------------


def small_regions(number: int) -> Regions:
    draw = torch.Generator().manual_seed(number)
    rows = torch.rand(10, 4, generator=draw), torch.rand(10, generator=draw), torch.rand(10, 64, generator=draw)
    return Regions(rows[0], rows[1], (640, 480), features=rows[2])


def written(folder: Path, count: int) -> float:
    """Return the records per second of a writer. At most 10,000 records are written; further shards are links to
    theirs."""
    own = min(count, 10_000)
    with StoreWriter(folder, FeatureContract("given", "", 64), 1000) as writer:
        records = [Record(f"{n}", captions=("a dog on a red boat",), regions=small_regions(n)) for n in range(1000)]
        began = time.process_time()
        for number in range(own):
            writer.add(replace(records[number % 1000], key=str(number)))
        writer.flush()
        took = time.process_time() - began
        for number in range(own // 1000, count // 1000):
            again, name = writer._shards[number % (own // 1000)], f"shard-{number:05d}.safetensors"
            os.link(folder / again.name, folder / name)
            writer._shards.append(msgspec.structs.replace(again, name=name))
    return own / took


def one_store(folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    own = psutil.Process()
    before = own.memory_full_info().uss
    opening = seconds(lambda: (store := Store(folder)) and len(store))
    store = Store(folder)
    splitting = seconds(lambda: store.split("train"))
    began = time.perf_counter()
    loader = Loader(store, store.split("train"), captions, AsIs(), BATCH, 0)
    making = time.perf_counter() - began
    loader.at(0, 0, 1)  # the first call shuffles the epoch
    rates = []
    for start in range(1, ROUNDS * BATCHES, BATCHES):
        began = time.process_time()
        for step in islice(range(start, start + BATCHES), BATCHES):
            loader.at(step % loader.steps_per_epoch, 0, 1)
        rates.append(BATCH * BATCHES / (time.process_time() - began))
    return {
        "s to open": round(opening, 4), "s to find a split": round(splitting, 6),
        "s to make the loader": round(making, 3),
        "MiB": round((own.memory_full_info().uss - before) / 2**20, 1),
        "GB on disk": round(sum(os.stat(folder / one.name).st_size for one in store.shards) / 1e9, 3),
        "samples a CPU second": round(median(rates)), "rounds": [round(rate) for rate in rates],
    }  # fmt: skip


def stores(sizes: Sequence[int] = STORES) -> dict[str, Any]:
    found: dict[str, Any] = measured().get("store", {})
    for count in sizes:
        with tempfile.TemporaryDirectory() as root:
            writing = written(Path(root), count)
            command = [sys.executable, "-m", "benchmarks.scale", "one-store", root]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[str(count)] = json.loads(done.stdout) | {"records written a CPU second": round(writing)}
        save_result("scale", COMMAND, measured() | {"store": found})  # saved at once, because the largest takes minutes
    return found


def galleries() -> dict[str, Any]:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for count in STORES:
        vectors = torch.nn.functional.normalize(
            torch.randn(count, 128, generator=torch.Generator().manual_seed(0)), dim=1
        )
        gallery = TowerGallery(tuple(map(str, range(count))), vectors)
        gallery.__dict__["_index"] = None  # use products even if faiss is installed
        queries = vectors[:20] + 0.01
        gallery.search(queries[:1])
        taken = [seconds(partial(gallery.search, query[None])) for query in queries]
        found[str(count)] = {"ms a query": round(1000 * median(taken), 3), "MiB": round(vectors.nbytes / 2**20, 1)}
    return found


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "step": steps, "processes": processes, "store": stores, "gallery": galleries,
}  # fmt: skip


def measured() -> dict[str, Any]:
    kept = RESULTS / "scale.json"
    figures: dict[str, Any] = json.loads(kept.read_text())["figures"] if kept.exists() else {}
    return figures


def main(given: Sequence[str]) -> None:
    if given[:1] == ["rank"]:
        one_of_them(Path(given[1]))
    elif given[:1] == ["one-store"]:
        print(json.dumps(one_store(Path(given[1]))))
    elif list(given) == ["largest"]:
        stores([10 * STORES[-1]])
    elif list(given) == ["page"]:
        from benchmarks.scale_page import write

        write(measured())
    else:
        if unknown := set(given) - PARTS.keys():
            raise SystemExit(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}, page")
        for name in given or PARTS:
            print(save_result("scale", COMMAND, measured() | {name: PARTS[name]()}).read_text())


if __name__ == "__main__":
    main(sys.argv[1:])
