"""Measure the cost of decoding images in separate processes: images per second and CPU time, against this process.

    uv run --group dev python -m benchmarks.decoding_price

The drawn images are 640 x 640, half of them PNG, half JPEG. `extract` runs the small detector, `mine` measures each
image. Decoding with and without separate processes runs in turn. The kept rate is the median over the rounds, and may
be at most 10% below 1. Writes benchmarks/results/decoding_price.json.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil
import torch
from PIL import Image

from benchmarks.machine import save_result
from benchmarks.serve import spent
from diptych.core import Record
from diptych.data.extract.extract import extract
from diptych.vision.image_files import count_frames, open_pixels, read_pixels
from diptych_mine.judge.decode import measure
from diptych_mine.settings import MiningSettings
from diptych_world.book import Storybook
from diptych_world.demo.detector import storybook_shape
from diptych_world.detector.detector import StorybookDetector
from diptych_world.detector.network import SmallDetector
from diptych_world.render import render

PICTURES, ROUNDS = 40, 5
HERE = SimpleNamespace(
    open=open_pixels, read_frames=lambda file, name, most: (read_pixels(file, name, most), count_frames(file, name))
)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    detector, rules = StorybookDetector(SmallDetector(storybook_shape())), MiningSettings(offline=True).pictures
    with tempfile.TemporaryDirectory() as folder:
        root, records = Path(folder), []
        for number, scene in enumerate(Storybook(0, "train", PICTURES)[:]):
            path = root / f"{number}.{'jpg' if number % 2 else 'png'}"
            Image.fromarray(render(scene, 4)).save(path)
            records.append(Record(path.stem, image=path, captions=("a dog",)))

        def extracted() -> None:
            shutil.rmtree(root / "store", ignore_errors=True)
            extract(records, detector, root / "store", 16, processes=1)

        def mined() -> None:
            for record in records:
                assert record.image is not None
                measure(record.image.read_bytes(), rules)

        figures = {
            "extract": compared(
                extracted, PICTURES, partial(_decoding, "diptych.data.extract.extract.shared_decoders")
            ),
            "mine": compared(mined, PICTURES, partial(_decoding, "diptych_mine.judge.decode.shared_decoders")),
        }
    command = "uv run --group dev python -m benchmarks.decoding_price"
    print(save_result("decoding_price", command, {"pictures": PICTURES} | figures).read_text())


def _decoding(decoders: str, own: bool) -> Any:
    return mock.patch(decoders, return_value=HERE) if own else nullcontext()


def compared(part: Callable[[], object], count: int, way: Callable[[bool], Any]) -> dict[str, object]:
    """Time `part`, which processes `count` images, with decoding in other processes (`way(False)`) and in this one
    (`way(True)`)."""
    with way(False):
        part()
    rates, costs = dict[str, list[float]](), dict[str, list[float]]()
    for _ in range(ROUNDS):
        for name in ("in other processes", "in this process"):
            with way(name == "in this process"):
                began, cpu = time.perf_counter(), spent(psutil.Process())
                part()
                rates.setdefault(name, []).append(count / (time.perf_counter() - began))
                costs.setdefault(name, []).append(1000 * (spent(psutil.Process()) - cpu) / count)
    kept = [there / here for there, here in zip(*rates.values(), strict=True)]
    return {
        "pictures a second": {name: round(median(values), 1) for name, values in rates.items()},
        "CPU ms of a picture": {name: round(median(values), 2) for name, values in costs.items()},
        "rate kept (goal 0.90)": round(median(kept), 2),
        "the same in each round": [round(one, 2) for one in kept],
    }


if __name__ == "__main__":
    main()
