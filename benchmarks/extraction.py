"""Measure images per second from files to a store, and the limits of this rate: copying, decoding, and the detector
alone.

    uv run python -m benchmarks.extraction [--photographs 2000]

There are 200 Storybook images as PNG, 160 x 160, in the page cache. The detector has random weights, which does not
change its time, and one thread per process. The parts run in turn for five rounds; figures are medians. Starting two
processes takes a few seconds, which are included; with more images this matters less. The benchmark takes two minutes
on an idle machine. CPU time includes all processes, so it shows the cost of separate decoding processes on a busy
machine too (limit: 10% of the rate).

Then the packaged detector `photos` extracts copies of the photographs in docs/photos, once in each way: by one process
with all threads, by one with one thread, and by two processes. `channels first` is its backbone with images in the
memory format that torch has by default. Writes benchmarks/results/extraction.json.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest import mock

import psutil
import torch
from PIL import Image

from benchmarks.machine import save_result
from benchmarks.serve import spent
from diptych.core import Record
from diptych.core.folders import DETECTOR, PACKAGED
from diptych.data.extract.extract import extract
from diptych.vision.detectors.detector import Picture
from diptych.vision.detectors.load import load_detector
from diptych.vision.image_files import open_pixels
from diptych.vision.pictures import open_picture
from diptych_world.demo.detector import storybook_shape
from diptych_world.detector.detector import StorybookDetector
from diptych_world.detector.network import SmallDetector
from diptych_world.layout import scene
from diptych_world.render import render

PICTURES, ROUNDS, BATCH = 200, 5, 16
Parts: TypeAlias = dict[str, Callable[[], object]]
Measured: TypeAlias = dict[str, list[float]]


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", type=int, default=2000, help="number of photographs that are extracted")
    given, threads = parser.parse_args(), torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        rates, costs = _measured(_parts(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        photographs = _of_photographs(Path(folder), given.photographs, threads)
    whole, here = "end to end, 1 process", "end to end, decoding in this process"
    kept = [one / other for one, other in zip(rates[whole], rates[here], strict=True)]
    results = {
        "pictures": PICTURES,
        "pictures_per_second": {name: round(statistics.median(values), 1) for name, values in rates.items()},
        "CPU ms of a picture": {name: round(statistics.median(values), 2) for name, values in costs.items()},
        "rate kept where other processes decode (goal 0.90)": round(statistics.median(kept), 2),
        "the same in each round": [round(one, 2) for one in kept],
        "photographs": photographs,
    }
    print(save_result("extraction", "uv run python -m benchmarks.extraction", results).read_text())


def _parts(root: Path) -> Parts:
    """Draw the images below `root`; return the functions to measure, by name."""
    detector = StorybookDetector(SmallDetector(storybook_shape()))
    paths = [root / f"{index:06d}.png" for index in range(PICTURES)]
    for index, path in enumerate(paths):
        Image.fromarray(render(scene(0, "test", index))).save(path, compress_level=1)
    records = [Record(path.stem, image=path, captions=("a dog",)) for path in paths]
    opened = [open_picture(path) for path in paths]

    def end_to_end(processes: int) -> None:
        shutil.rmtree(root / "store", ignore_errors=True)
        extract(records, detector, root / "store", BATCH, processes=processes)

    def detector_alone() -> None:
        for start in range(0, PICTURES, BATCH):
            detector.detect(opened[start : start + BATCH], records[start : start + BATCH])

    def decoding_here() -> None:
        here = SimpleNamespace(open=open_pixels)
        with mock.patch("diptych.data.extract.extract.shared_decoders", return_value=here):
            end_to_end(1)

    return {
        "copy only": lambda: [path.read_bytes() for path in paths],
        "decode only": lambda: [open_picture(path) for path in paths],
        "detector only": detector_alone,
        "end to end, 1 process": lambda: end_to_end(1),
        "end to end, decoding in this process": decoding_here,
        "end to end, 2 processes": lambda: end_to_end(2),
    }


def _of_photographs(root: Path, count: int, threads: int) -> dict[str, Any]:
    """Extract `count` copies of photographs by `photos`, in a new process for each way; return images a second."""
    sources = sorted(Path("docs/photos").glob("*.jpg"))
    for number in range(count):
        shutil.copy(sources[number % len(sources)], root / f"{number:06d}.jpg")
    rows = [{"image": f"{number:06d}.jpg", "captions": ["a photograph"]} for number in range(count)]
    (root / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    rates: dict[str, float] = {}
    for processes, each in ((1, threads), (1, 1), (2, 1)):
        command = [sys.executable, "-m", "diptych", "extract", "data.jsonl", "--out", f"store-{processes}-{each}",
                   "--detector", "photos", "--processes", str(processes)]  # fmt: skip
        began = time.perf_counter()
        subprocess.run(
            command, cwd=root, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": f"{each}"}
        )
        rates[f"{processes} process{'es' * (processes > 1)}, threads {each}"] = count / (time.perf_counter() - began)
    alone = rates["1 process, threads 1"]
    return {
        "pictures": count,
        "pictures a second": {name: round(rate, 2) for name, rate in rates.items()},
        "2 processes / twice one thread (goal 0.80)": round(rates["2 processes, threads 1"] / (2 * alone), 2),
        "CPU ms of a picture": _of_the_detector([open_picture(path) for path in sources] * 2),
    }


def _of_the_detector(pictures: list[Picture]) -> dict[str, float]:
    """Return the CPU milliseconds per image of the detector, in turn with its backbone in channels first."""
    detector = load_detector(PACKAGED / "photos" / DETECTOR)
    records = [Record(str(number)) for number in range(len(pictures))]
    costs: dict[str, list[float]] = {"detector": [], "detector, channels first": []}
    for _ in range(ROUNDS):
        for taken, kept in zip(costs.values(), (torch.channels_last, torch.contiguous_format), strict=True):
            with mock.patch("diptych.vision.backbones.backbone.FORMAT", kept):
                detector.detect(pictures, records)
                began = time.process_time()
                detector.detect(pictures, records)
            taken.append(1000 * (time.process_time() - began) / len(pictures))
    return {name: round(statistics.median(taken), 1) for name, taken in costs.items()}


def _measured(parts: Parts) -> tuple[Measured, Measured]:
    """Return images per second, and CPU milliseconds per image, of each part in each round."""
    rates: Measured = {name: [] for name in parts}
    costs: Measured = {name: [] for name in parts}
    for _ in range(ROUNDS):
        for name, part in parts.items():
            began, cpu = time.perf_counter(), spent(psutil.Process())
            part()
            rates[name].append(PICTURES / (time.perf_counter() - began))
            costs[name].append(1000 * (spent(psutil.Process()) - cpu) / PICTURES)
    return rates, costs


if __name__ == "__main__":
    main()
