"""Measure the cost of reading h5 files in a separate process: images per second, against reading in this process.

    uv run --all-extras --group dev python -m benchmarks.h5_price

The files are in Unified VLP's format: 100 x 2048 and 100 x 1601 random float32 numbers per image in 20 files, and boxes
in another file. They are stored contiguously, and in chunks of ten rows; all are in the page cache. `read` reads the
three arrays of each image, `extract` also writes them to a store. Reading with and without the separate process runs in
turn. The kept rate is the median over the rounds, and may be at most 10% below 1 for `extract`. Writes
benchmarks/results/h5_price.json.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import torch

from benchmarks.decoding_price import compared
from benchmarks.machine import save_result
from diptych.core import Record
from diptych.data.extract.extract import extract
from diptych.runtime.memory import keep_freed_memory
from diptych.vision.detectors.given import GivenRegions
from diptych.vision.features import vlp
from diptych.vision.features.files import open_features
from diptych.vision.features.h5 import Arrays, FilesHere, OpenFiles

IMAGES, PARTS = 300, 20
NAMES = [f"COCO_val2014_{1000 * number + number % PARTS:012d}" for number in range(IMAGES)]


class Here(OpenFiles):
    """A reader of h5 files that runs in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.here = FilesHere()

    def names(self, path: Path) -> list[str]:
        return self.here.names(path)

    def expect(self, *_: object) -> None: ...

    def each(self, paths: Sequence[Path], name: str, where: str) -> Arrays:
        """Read each array in this process, with checks, into memory that h5py allocates."""
        sets = {path: self.here.dataset(path, name, where) for path in paths}
        return {path: None if one is None else one[()] for path, one in sets.items()}


class InTurn:
    """An executor that runs work in `submit`. So each window of records is written before the next is read."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, work: Callable[..., Any], *given: object) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*given))
        return done

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None: ...


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # the command line does this, too
    records = [Record(name, size=(640, 480), captions=("a dog",)) for name in NAMES]
    figures: dict[str, object] = {"images": IMAGES, "arrays": 3 * IMAGES}
    for layout, chunks in {"contiguous": None, "chunked": (10, 1601)}.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "h5").mkdir()
            _write(root / "h5", chunks)
            for name, part in {"read": _reading(root), "extract": _extracting(root, records)}.items():
                figures[f"{layout}, {name}"] = compared(part, IMAGES, _here)
    command = "uv run --all-extras --group dev python -m benchmarks.h5_price"
    print(save_result("h5_price", command, figures).read_text())


@contextmanager
def _here(own: bool) -> Iterator[None]:
    """If `own`, read in this process, and write each window of records before the next is read. Diptych worked like
    this before it had a separate reading process."""
    with ExitStack() as stack:
        if own:
            stack.enter_context(mock.patch.object(vlp, "OpenFiles", Here))
            stack.enter_context(mock.patch("diptych.data.extract.extract.ThreadPoolExecutor", InTurn))
        yield


def _reading(root: Path) -> Callable[[], object]:
    def read() -> None:
        for place in open_features(root / "h5").exact.values():
            place.unit.read(place.name)

    return read


def _extracting(root: Path, records: list[Record]) -> Callable[[], object]:
    def extracted() -> None:
        shutil.rmtree(root / "store", ignore_errors=True)
        extract(records, GivenRegions.of(root / "h5", records), root / "store", 16, processes=1)

    return extracted


def _write(folder: Path, chunks: tuple[int, int] | None) -> None:
    drawn = np.random.default_rng(0)
    features, classes = drawn.random((100, 2048), np.float32), drawn.dirichlet(np.ones(1601), 100).astype(np.float32)
    boxes = np.tile(np.array([10, 20, 200, 300, 1, 1], np.float32), (100, 1))
    with h5py.File(folder / "boxes.h5", "w") as whole:
        for name in NAMES:
            whole[name] = boxes
            for what, array in {"feat": features, "cls": classes}.items():
                with h5py.File(folder / f"a_{what}{name[-3:]}.h5", "a") as part:
                    part.create_dataset(name, data=array, chunks=chunks)


if __name__ == "__main__":
    main()
