"""Measure samples per second from a store as large as Unified VLP's, against ArrayRecord with grain, and a plain copy.

    uv run --with grain --with array-record python -m benchmarks.loader

There are 1,200 images of 36 to 100 regions with 2,048 half-precision features (410 MB), in the page cache. A batch has
32 samples, padded to the longest. The readers run in turn for five rounds; figures are medians. Then `wide` measures
how a GPU is fed: all images have 100 regions, micro-batches have 64 samples, and features stay in half precision.
Batches are made by threads or by processes. Writes benchmarks/results/loader.json.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from benchmarks.machine import save_result
from diptych.core import BIDIRECTIONAL, FeatureContract, Record, Regions, Sample, collate
from diptych.data.store.loader import Loader
from diptych.data.store.store import Store, StoreWriter
from diptych.training.feeding import Maker, from_processes, prefetched

PICTURES, FEATURE, BATCH, ROUNDS, WIDE_BATCH, WIDE_ROUNDS = 1200, 2048, 32, 5, 64, 3
WORDS = torch.arange(20)


def regions(number: int, fewest: int = 36) -> Regions:
    count = Random(number).randint(fewest, 100)
    generator = torch.Generator().manual_seed(number)
    return Regions(
        boxes=torch.rand(count, 4, generator=generator),
        scores=torch.rand(count, generator=generator),
        size=(640, 480),
        features=torch.rand(count, FEATURE, generator=generator),
    )


class AsIs:
    objectives = ()
    needs: frozenset[str] = frozenset()
    weights: dict[str, float] = {}  # noqa: RUF012

    def at(self, step: int) -> AsIs:
        return self

    def prepare(self, samples: list[Sample], rng: Random, partners: object = None) -> list[Sample]:
        return samples

    def counts(self, batch: object) -> dict[str, Any]:
        return {}

    def losses(self, model: object, batch: object) -> Iterator[dict[str, Any]]:
        yield {}


def ours(folder: Path, threads: int) -> Callable[[], int]:
    store = Store(folder)
    loader = Loader(store, range(len(store)), captions, AsIs(), BATCH, 0)

    def epoch() -> int:
        steps = range(loader.steps_per_epoch)
        if threads == 0:
            return sum(len(loader.at(step, 0, 1)) for step in steps)
        with ThreadPoolExecutor(threads) as pool:
            return sum(len(batch) for batch in pool.map(lambda step: loader.at(step, 0, 1), steps))

    return epoch


def copied(folder: Path) -> Callable[[], int]:
    """Return a function that copies all bytes once, in order: the upper limit."""
    shards = [np.memmap(path, np.uint8, "r") for path in sorted(folder.glob("*.safetensors"))]

    def epoch() -> int:
        for shard in shards:
            for start in range(0, len(shard), 2**24):
                shard[start : start + 2**24].copy()
        return PICTURES

    return epoch


def grains(folder: Path, threads: int) -> Callable[[], int] | None:
    try:
        import grain.python as grain
        from array_record.python.array_record_module import ArrayRecordWriter
    except ImportError:
        return None
    path = folder / "features.arrayrecord"
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for number in range(PICTURES):
        seen = regions(number)
        assert seen.features is not None
        writer.write(len(seen).to_bytes(4, "little") + seen.boxes.numpy().tobytes() + seen.scores.numpy().tobytes()
                     + seen.features.half().numpy().tobytes())  # fmt: skip
    writer.close()

    def parse(raw: bytes) -> Sample:
        count = int.from_bytes(raw[:4], "little")
        boxes = np.frombuffer(raw, np.float32, count * 4, 4).reshape(count, 4)
        scores = np.frombuffer(raw, np.float32, count, 4 + 16 * count)
        features = np.frombuffer(raw, np.float16, count * FEATURE, 4 + 20 * count).reshape(count, FEATURE)
        seen = Regions(torch.from_numpy(boxes.copy()), torch.from_numpy(scores.copy()), (640, 480),
                       features=torch.from_numpy(features.astype(np.float32)))  # fmt: skip
        return Sample("", "", seen, WORDS, attention=BIDIRECTIONAL)

    def epoch() -> int:
        data = grain.MapDataset.source(grain.ArrayRecordDataSource(str(path))).seed(0).shuffle().map(parse)
        data = data.batch(BATCH, batch_fn=collate)
        options = grain.ReadOptions(num_threads=max(threads, 1), prefetch_buffer_size=8)
        return sum(len(batch) for batch in islice(data.to_iter_dataset(options), PICTURES // BATCH))

    return epoch


def fed(folder: Path, processes: int, threads: int = 0) -> Callable[[], int]:
    """Return a function that measures samples per second of prefetched batches over two epochs. The epoch before them
    is not timed, because processes start and checksums are verified in it."""
    store = Store(folder)
    loader = Loader(store, range(len(store)), captions, AsIs(), WIDE_BATCH, 0)
    make, steps = Maker(AsIs(), loader, 1), loader.steps_per_epoch

    def epoch() -> int:
        places = ((step, 0) for step in range(3 * steps))
        waiting = 2 * max(processes, threads) + 1
        ahead = (
            from_processes(make, places, processes, waiting, False)
            if processes
            else prefetched(make, places, threads, waiting)
        )
        with ahead as parts:
            for _ in range(steps):
                next(parts)
            began, count = time.perf_counter(), sum(len(part.batch) for part in islice(parts, 2 * steps))
            return round(count / (time.perf_counter() - began))

    return epoch


def captions(record: Record) -> list[Sample]:
    return [Sample(record.key, record.key, None, WORDS)]


def wide(folder: Path) -> dict[str, Any]:
    """Return samples per second of 100 regions x 2,048 features, by the number of threads or processes that make
    batches."""
    with StoreWriter(folder / "wide", FeatureContract("given", "", FEATURE), 300) as writer:
        for number in range(PICTURES):
            writer.add(Record(f"{number}", captions=("a dog",), regions=regions(number, 100)))
    ways = {"0 threads": (0, 0), "1 thread": (0, 1), "2 threads": (0, 2), "1 process": (1, 0), "2 processes": (2, 0)}
    rates = {name: [fed(folder / "wide", *way)() for _ in range(WIDE_ROUNDS)] for name, way in ways.items()}
    return {"samples a second": {name: round(statistics.median(found)) for name, found in rates.items()},
            "rounds": rates, "a copy of the bytes": wide_copy(folder / "wide")}  # fmt: skip


def wide_copy(folder: Path) -> int:
    began = time.perf_counter()
    return round(copied(folder)() / (time.perf_counter() - began))


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with StoreWriter(root / "store", FeatureContract("given", "", FEATURE), 300) as writer:
            for number in range(PICTURES):
                writer.add(Record(f"{number}", captions=("a dog",), regions=regions(number)))
        readers: dict[str, Callable[[], int] | None] = {
            "copy of the bytes (the limit)": copied(root / "store"),
            "diptych, no thread": ours(root / "store", 0),
            "diptych, 1 thread": ours(root / "store", 1),
            "diptych, 2 threads": ours(root / "store", 2),
            "grain on ArrayRecord, 2 threads": grains(root, 2),
        }
        rates: dict[str, list[float]] = {name: [] for name, reader in readers.items() if reader is not None}
        for _ in range(ROUNDS):
            for name, measured in rates.items():
                reader = readers[name]
                assert reader is not None
                began = time.perf_counter()
                count = reader()
                measured.append(count / (time.perf_counter() - began))
        of_wide = wide(root)
    result = {name: round(statistics.median(values)) for name, values in rates.items()}
    rounds = {name: [round(rate) for rate in measured] for name, measured in rates.items()}
    command = "uv run --with grain --with array-record python -m benchmarks.loader"
    save_result("loader", command, {"samples_per_second": result, "rounds": rounds, "wide": of_wide})
    print(json.dumps(result | of_wide, indent=2))


if __name__ == "__main__":
    main()
