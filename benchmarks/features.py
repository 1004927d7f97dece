"""Measure how fast other projects' features are converted to a store (GB/s), against a plain copy of the files.

    uv run --all-extras python -m benchmarks.features

There are 500 images of 36 regions with 2,048 random numbers each, in the page cache. torch has one thread, and figures
are medians of five rounds. The h5 features are in 50 files of ten images each. The size is that of the features as
float32; for a copy, that of the file. A store is half as large, has checksums, and is flushed to the disk. A plain copy
is not flushed, so a flushed copy is timed too. The columns `processor` use CPU seconds instead of elapsed time.

The figures `index` are the CPU seconds and peak memory to open a COCO file with 600,000 captions of 120,000 images, in
a separate process. Importing torch takes most of this memory. Writes benchmarks/results/features.json.
"""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import lmdb
import numpy as np
import torch

from benchmarks.machine import save_result
from diptych.core import Record
from diptych.data.extract.extract import extract
from diptych.runtime.files import sync
from diptych.runtime.memory import keep_freed_memory
from diptych.vision.detectors.given import GivenRegions

PICTURES, REGIONS, SIZE, PARTS, ROUNDS = 500, 36, 2048, 50, 5
NAMES = [f"COCO_val2014_{1000 * number + number % PARTS:012d}" for number in range(PICTURES)]
INDEX = """
import json, sys, time
from pathlib import Path
from diptych.data.formats.table import read
begun = time.process_time()
assert len(read(Path(sys.argv[1]), need_pictures=False)) == 120_000
seconds = time.process_time() - begun
most = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps([seconds, int(most.split()[1]) / 1024]))
"""


def main() -> None:
    torch.set_num_threads(1)
    features = np.random.default_rng(0).random((REGIONS, SIZE), np.float32)
    boxes = np.tile(np.array([10, 20, 200, 300], np.float32), (REGIONS, 1))
    records = [Record(name, size=(640, 480), captions=("a dog",)) for name in NAMES]
    keep_freed_memory()  # the command line does this, too
    speeds: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, write in {"npz": _npz, "tsv": _tsv, "h5": _h5, "LMDB": _lmdb}.items():
            path = root / name
            path.mkdir()
            write(path, features, boxes)
            size = sum(file.stat().st_size for file in path.iterdir())
            speeds[name] = _speeds(path, size / 1e9, records, root)
            shutil.rmtree(path)
        seconds, most = _index(root / "captions.json")
    index = {"captions": 600_000, "processor_seconds": round(seconds, 2), "most_memory_mb": round(most)}
    save_result(
        "features", "uv run --all-extras python -m benchmarks.features", {"gb_per_second": speeds, "index": index}
    )


def _speeds(path: Path, size: float, records: list[Record], root: Path) -> dict[str, float]:
    """Return GB per second of each way, as medians of rounds in turn."""
    given = GivenRegions.of(path, records)

    def copy(flushed: bool) -> None:
        shutil.copytree(path, root / "copy")
        if flushed:
            for file in (root / "copy").iterdir():
                sync(file)

    def convert() -> None:
        given.bytes_read = 0
        extract(records, given, root / "store")

    ways = {"plain copy": lambda: copy(False), "flushed copy": lambda: copy(True), "to a store": convert}
    seconds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            begun, spent = time.perf_counter(), time.process_time()
            run()
            seconds.setdefault(name, []).append(time.perf_counter() - begun)
            seconds.setdefault(f"{name}, processor", []).append(time.process_time() - spent)
            shutil.rmtree(root / ("store" if run is convert else "copy"))
    sizes = {name: given.bytes_read / 1e9 if name.startswith("to a store") else size for name in seconds}
    return {
        name: round(sizes[name] / statistics.median(taken), 3)
        for name, taken in seconds.items()
        if name != "flushed copy, processor"
    }


def _npz(folder: Path, features: object, boxes: object) -> None:
    for name in NAMES:
        np.savez(folder / f"{name}.npz", features=features, boxes=boxes, width=640, height=480)


def _tsv(folder: Path, features: object, boxes: object) -> None:
    fields = [base64.b64encode(array.tobytes()) for array in (boxes, features)]  # type: ignore[attr-defined]
    with (folder / "a.tsv").open("wb") as file:
        for name in NAMES:
            file.write(b"\t".join([name.encode(), b"640", b"480", str(REGIONS).encode(), *fields]) + b"\n")


def _h5(folder: Path, features: object, boxes: object) -> None:
    """Write features in the format of Unified VLP: one file for each value of the last three characters of a name."""
    places = np.concatenate([boxes, np.ones((REGIONS, 2), np.float32)], 1)  # type: ignore[arg-type]
    with h5py.File(folder / "boxes.h5", "w") as whole:
        for name in NAMES:
            whole[name] = places
            with h5py.File(folder / f"a_feat{name[-3:]}.h5", "a") as part:
                part[name] = features


def _lmdb(folder: Path, features: object, boxes: object) -> None:
    """Write features in the format of MMF."""
    value = pickle.dumps({"features": features, "bbox": boxes, "image_width": 640, "image_height": 480})
    with lmdb.open(str(folder), map_size=2**30) as environment, environment.begin(write=True) as held:
        held.put(b"keys", pickle.dumps([name.encode() for name in NAMES]))
        for name in NAMES:
            held.put(name.encode(), value)


def _index(path: Path) -> tuple[float, float]:
    names = [f"COCO_train2014_{number:012d}.jpg" for number in range(120_000)]
    address = "http://images.cocodataset.org/train2014/"
    images = [
        {"id": n, "file_name": name, "width": 640, "height": 480, "license": 1, "coco_url": address + name}
        for n, name in enumerate(names)
    ]
    words = [
        {"id": n, "image_id": n // 5, "caption": f"A very clean and well decorated empty bathroom {n}"}
        for n in range(600_000)
    ]
    path.write_text(json.dumps({"images": images, "annotations": words}))
    done = subprocess.run([sys.executable, "-c", INDEX, str(path)], capture_output=True, text=True, check=True)
    seconds, most = json.loads(done.stdout)
    return seconds, most


if __name__ == "__main__":
    main()
