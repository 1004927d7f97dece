"""Measure the cost of image fingerprints: for each image during extraction, and for all images at the end of a run.

    uv run python -m benchmarks.fingerprints

`of decoding` is the CPU time of a fingerprint divided by that of opening the same JPEG, which extraction does anyway.
At the end of a run, the fingerprints of the training images are read from the store and saved with the model. An
evaluation then compares the test images with them. Takes a few minutes. Writes benchmarks/results/fingerprints.json.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.machine import save_result
from diptych.core import FeatureContract, Record, Regions
from diptych.data.leakage import Fingerprints, SeenImages, prints_of
from diptych.data.store.store import Store, StoreWriter
from diptych.vision.fingerprints import image_fingerprint
from diptych.vision.image_files import open_pixels
from diptych_world.layout import scene
from diptych_world.render import render

SIZES = ((160, 160), (640, 480), (1920, 1080))
ROUNDS, RECORDS, SEEN, TESTED = 20, 20_000, 100_000, 5_000


def milliseconds(job: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median CPU milliseconds of `job`."""
    taken = []
    for _ in range(rounds):
        before = time.process_time()
        job()
        taken.append(1000 * (time.process_time() - before))
    return statistics.median(taken)


def of_an_image(folder: Path, size: tuple[int, int]) -> dict[str, float]:
    path = folder / "one.jpg"
    Image.fromarray(render(scene(0, "test", 0))).resize(size).save(path, quality=90)
    pixels = open_pixels(path)
    opening, taking = milliseconds(lambda: open_pixels(path)), milliseconds(lambda: image_fingerprint(pixels))
    return {"open_ms": round(opening, 2), "fingerprint_ms": round(taking, 2), "of_decoding": round(taking / opening, 2)}


def fingerprint(drawn: np.random.Generator) -> tuple[int, int]:
    return int.from_bytes(drawn.bytes(8)), int.from_bytes(drawn.bytes(32))


def at_the_end(folder: Path) -> dict[str, float]:
    drawn = np.random.default_rng(0)
    prints = [fingerprint(drawn) for _ in range(SEEN)]
    regions = Regions(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), (9, 9), features=torch.zeros(1, 4))
    contract = FeatureContract("benchmark", "", 4)
    with StoreWriter(folder / "store", contract) as writer:
        for number in range(RECORDS):
            writer.add(Record(f"{number}", fingerprint=prints[number], regions=regions))
    store, seen = Store(folder / "store"), SeenImages.of(Fingerprints.of(prints, 0), None, begun=False)
    tested = Fingerprints.of([fingerprint(drawn) for _ in range(TESTED)], 0)
    found = Fingerprints.of(prints[:RECORDS], 0)
    return {
        "records": RECORDS,
        "read_from_the_store_ms": round(milliseconds(lambda: prints_of(store, range(RECORDS)), 3)),
        "sort_and_save_ms": round(milliseconds(lambda: SeenImages.of(found, None, begun=False).save(folder), 3)),
        "test_images": TESTED,
        "training_images": SEEN,
        "compare_ms": round(milliseconds(lambda: seen.leakage(tested), 3)),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        figures = {f"{width} x {height}": of_an_image(Path(scratch), (width, height)) for width, height in SIZES}
        save_result("fingerprints", "uv run python -m benchmarks.fingerprints",
                    {"of an image": figures, "at the end of a run": at_the_end(Path(scratch))})  # fmt: skip
    print((Path(__file__).parent / "results" / "fingerprints.json").read_text())


if __name__ == "__main__":
    main()
