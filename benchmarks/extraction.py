"""Measure images per second from files to a store, and the limits of this rate: copying, decoding, and the detector
alone.

    uv run python -m benchmarks.extraction

There are 200 Storybook images as PNG, 160 x 160, in the page cache. The detector has random weights, which does not
change its time, and one thread per process. The parts run in turn for five rounds; figures are medians. Starting two
processes takes a few seconds, which are included; with more images this matters less. The benchmark takes two minutes
on an idle machine. CPU time includes all processes, so it shows the cost of separate decoding processes on a busy
machine too (limit: 10% of the rate). Writes benchmarks/results/extraction.json.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias
from unittest import mock

import psutil
import torch
from PIL import Image

from benchmarks.machine import save_result
from benchmarks.serve import spent
from diptych.core import Record
from diptych.data.extract.extract import extract
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
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        rates, costs = _measured(_parts(Path(folder)))
    whole, here = "end to end, 1 process", "end to end, decoding in this process"
    kept = [one / other for one, other in zip(rates[whole], rates[here], strict=True)]
    results = {
        "pictures": PICTURES,
        "pictures_per_second": {name: round(statistics.median(values), 1) for name, values in rates.items()},
        "CPU ms of a picture": {name: round(statistics.median(values), 2) for name, values in costs.items()},
        "rate kept where other processes decode (goal 0.90)": round(statistics.median(kept), 2),
        "the same in each round": [round(one, 2) for one in kept],
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
