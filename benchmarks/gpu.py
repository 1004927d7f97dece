"""Measure training steps and decoding on a GPU, and its rate of matrix products. Each stage takes minutes.

    PYTHONPATH=src python3 -m benchmarks.gpu [STAGE...] [--out gpu-results] [--batch N] [--tiny]

Stages, each with its own JSON file in --out:

- `unified-vlp`, `vl-bert`, `image-bert`: a pre-training step of the recipe, with 100 regions and 36 words.
- `tden`: both passes of a pre-training step, with 50 regions and 36 words.
- `decoding`: captions of 20 words by Unified VLP, with 5 beams.
- `syncs`: how often a step waits for the device.
- `profile`: the kernels that take most of Unified VLP's step.
- `feeding`: samples per second of 100 regions x 2,048 features that this machine makes and the device receives.
- `extraction`: images per second from files to a store by the official detectors at full size, and the rates of
  decoding alone and of the network alone.

The share of the peak compares two rates of operations in bf16: that of the step's layers, and that of one large matrix
product on the same device. With --tiny the program also runs on a CPU, as a test. Needs torch 2.6 or later;
`extraction` also needs torchvision.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import tden
from benchmarks.encoders import BASE, TINY, Sizes, built, prepared
from benchmarks.loader import FEATURE, AsIs, captions, regions
from benchmarks.machine import machine
from diptych.core import FeatureContract, Record
from diptych.data.store.loader import Loader
from diptych.data.store.store import Store, StoreWriter
from diptych.models.decoding import DecodingOptions, search
from diptych.runtime.configs import derive
from diptych.runtime.devices import autocast, choose_device
from diptych.systems import find_recipe
from diptych.training.config import TrainingConfig
from diptych.training.feeding import Maker, Sender, by_step, prefetched_parts
from diptych.training.optimizer import build_optimizer, clip

ENCODERS = ("unified-vlp", "vl-bert", "image-bert")
STAGES = (*ENCODERS, "tden", "decoding", "syncs", "profile", "feeding", "extraction")
WARM, ROUNDS, SIDE, KERNELS = 3, 10, 8192, 15


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(run: Callable[[], object], device: torch.device, rounds: int) -> float:
    """Return the median seconds of `run`, until the device has finished."""
    for _ in range(WARM):
        run()
    taken = []
    for _ in range(rounds):
        finish(device)
        began = time.perf_counter()
        run()
        finish(device)
        taken.append(time.perf_counter() - began)
    return median(taken)


def peak(device: torch.device, side: int) -> float:
    """Return the operations per second of a product of two bf16 matrices of `side` x `side`."""
    a, b = (torch.rand(side, side, device=device).bfloat16() for _ in range(2))
    return 2 * side**3 / seconds(lambda: a @ b, device, ROUNDS)


def operations(sizes: Sizes, positions: int) -> float:
    """Return the operations of a step's layers: two for each weight and position, and the products of attention.
    Backward counts twice the forward pass."""
    weights = sizes.layers * (4 * sizes.width**2 + 2 * sizes.width * sizes.ffn)
    attention = sizes.layers * 2 * positions * sizes.width
    return 3 * 2 * sizes.pictures * positions * (weights + attention)


def step_of(system: str, sizes: Sizes, device: torch.device) -> tuple[Callable[[], None], int]:
    """Return a training step with the optimizer of the system's published recipe, and its number of positions."""
    update, batch = prepared(sizes)
    recipe = derive(find_recipe(f"{system}/pretrain").optimizer, lr_multipliers={})
    model = built(system, sizes).to(device)
    optimizer = build_optimizer(model, recipe, device)
    counts = {name: max(float(count), 1.0) for name, count in update.counts(batch).items()}
    moved = replace(batch, places=update.places(batch)).to(device)

    def step() -> None:
        with autocast(device, "bf16"):
            (losses,) = list(update.losses(model, moved))
        torch.stack([cost / counts[name] for name, cost in losses.items()]).sum().backward()
        clip(model.parameters(), recipe)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, sizes.words + sizes.regions + 3


def training(system: str, sizes: Sizes, device: torch.device, side: int) -> dict[str, Any]:
    if system == "tden":
        width = tden.SMALL if sizes == TINY else tden.BASE
        step, positions = tden.ours("tden/pretrain", width, sizes.pictures, device), tden.REGIONS + 1 + tden.WORDS
        needed = tden.operations(width, sizes.pictures)
    else:
        step, positions = step_of(system, sizes, device)
        needed = operations(sizes, positions)
    took, best = seconds(step, device, ROUNDS), peak(device, side)
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {
        "pictures": sizes.pictures,
        "positions": positions,
        "seconds a step": took,
        "samples a second": sizes.pictures / took,
        "operations a second, peak": best,
        "share of the peak": needed / took / best,
        "memory, GiB": round(memory / 2**30, 2),
    }


def profiled(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Return the milliseconds of a Unified VLP step, in all and for the kernels that take most."""
    step, _ = step_of("unified-vlp", sizes, device)
    for _ in range(WARM):
        step()
    kinds = [ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU]
    with profile(activities=kinds) as found:
        for _ in range(ROUNDS):
            step()
        finish(device)
    of = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    taken = {one.key: getattr(one, of) / 1000 / ROUNDS for one in found.key_averages()}
    most = sorted(taken, key=lambda name: -taken[name])[:KERNELS]
    return {"all": sum(taken.values()), **{name[:80]: round(taken[name], 3) for name in most}}


def decoding(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    _, batch = prepared(sizes)
    model = built("unified-vlp", sizes).to(device).eval()
    asked = batch.without_text().to(device)
    options = DecodingOptions(beams=5, max_words=min(20, sizes.words), stop_early=False)

    def write() -> None:
        with torch.no_grad(), autocast(device, "bf16"):
            search(model, asked, options)  # type: ignore[arg-type]

    took = seconds(write, device, ROUNDS)
    return {"pictures": sizes.pictures, "seconds": took, "pictures a second": sizes.pictures / took}


def syncs(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Return how often a step waits for the device after warm-up, in all and by place in the source."""
    if device.type != "cuda":
        return {"waits": None}
    step, _ = step_of("unified-vlp", sizes, device)
    for _ in range(WARM):
        step()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        step()
        torch.cuda.set_sync_debug_mode("default")
    waited = [one for one in caught if "called a synchronizing" in str(one.message)]
    places = [f"{Path(one.filename).name}:{one.lineno}" for one in waited]
    return {"waits": len(places), "places": {place: places.count(place) for place in sorted(set(places))}}


def feeding(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Return samples per second by number of processes. Batches are prefetched, pinned and copied as in training, but
    no step runs."""
    found = {}
    with tempfile.TemporaryDirectory() as root:
        count, batch = (64, 8) if sizes.pictures < 8 else (2000, 64)
        with StoreWriter(Path(root), FeatureContract("given", "", FEATURE), 500) as writer:
            for number in range(count):
                writer.add(Record(f"{number}", captions=("a dog",), regions=regions(number, 100)))
        store = Store(Path(root))
        maker = Maker(AsIs(), Loader(store, range(count), captions, AsIs(), batch, 0), 1, device.type == "cuda")
        for processes in (0, 1) if sizes.pictures < 8 else (0, 4, 8, 14):
            training = TrainingConfig(steps=1, batch=batch, loading_processes=processes)
            steps, sender = count // batch, Sender(device)
            places = ((step, 0) for step in range(3 * steps))
            with prefetched_parts(maker, places, 1, training, device) as parts:
                for mine, after in islice(by_step(parts, 1, ahead=True), steps):  # not timed: verifies checksums
                    sender.send(after)
                    sender.arrived(mine[0])
                finish(device)
                began, taken = time.perf_counter(), 0
                for part in parts:
                    taken += len(sender.arrived(part))
                finish(device)
            found[f"{processes} processes"] = round(taken / (time.perf_counter() - began))
    return {"samples a second": found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"some of {', '.join(STAGES)}; default: all")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 16), help="that open images")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    if unknown := set(given.stages) - set(STAGES):
        parser.error(f"unknown stage {', '.join(sorted(unknown))}; choose from {', '.join(STAGES)}")
    device = choose_device("auto" if given.tiny else "cuda", "the benchmark")

    sizes = TINY if given.tiny else replace(BASE, pictures=given.batch)
    side = 256 if given.tiny else SIDE
    given.out.mkdir(parents=True, exist_ok=True)
    for stage in given.stages or STAGES:
        if stage == "decoding":
            figures = decoding(sizes, device)
        elif stage == "feeding":
            figures = feeding(sizes, device)
        elif stage == "extraction":
            from benchmarks.gpu_extraction import extraction  # imports torchvision

            figures = extraction(device, given.processes, given.tiny)
        elif stage == "profile":
            figures = profiled(sizes, device)
        elif stage == "syncs":
            figures = syncs(sizes, device)
        else:
            figures = training(stage, sizes, device, side)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
        record = {"stage": stage, "device": name, "machine": machine(), "figures": figures}
        (given.out / f"{stage}.json").write_text(json.dumps(record, indent=2) + "\n")
        print(stage, figures, flush=True)


if __name__ == "__main__":
    main()
