"""Fill a store: extract the regions of each image once, and report the images that failed."""

from __future__ import annotations

import filecmp
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import islice, tee
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from diptych.core import Record, Regions
from diptych.data.store.record_json import record_from_json, record_to_json
from diptych.data.store.store import FAILURES, StoreWriter
from diptych.runtime.engine import run
from diptych.runtime.engine.outcome import Counts
from diptych.runtime.errors import DataError, RecipeError, nearest
from diptych.runtime.files import write_atomically
from diptych.runtime.processes import map_in_processes
from diptych.vision.decoder import shared_decoders
from diptych.vision.detectors.detector import Detector, Picture, computing_on
from diptych.vision.detectors.load import load_detector
from diptych.vision.fingerprints import image_fingerprint
from diptych.vision.pictures import as_picture

LOCAL, RAY = "local", "ray"
EXTRACTING = (LOCAL, RAY)  # engines
CPU = torch.device("cpu")
WINDOW = 4  # batches whose images are sorted by shape together, so that a detector that pads a batch pads little
MOST_BYTES = 256 * 2**20  # limit of decoded images that wait for the detector: one may have 200 MB

Readable: TypeAlias = "tuple[Record, Picture | None]"  # None: the detector reads the record alone
Opened: TypeAlias = "tuple[Record, Picture | DataError | None]"
Failed: TypeAlias = dict[str, str]  # by key: the reason
Extracted: TypeAlias = tuple[list[tuple[Record, Regions]], Failed]  # from a window of records
Packed: TypeAlias = dict[str, Any]  # the fields of regions, with arrays for tensors


@dataclass
class Extraction:
    """The result of an extraction. `failed` has the reason for each record that is not in the store, by key."""

    written: int = 0
    already_there: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        counts = {"were there already": self.already_there, "failed": len(self.failed)}
        return ", ".join([f"{self.written} extracted", *(f"{n} {what}" for what, n in counts.items() if n)])


def extract(
    records: Iterable[Record],
    detector: Detector,
    folder: Path,
    batch_size: int = 16,
    records_per_shard: int = 1000,
    progress: Callable[[int], object] | None = None,
    threads: int = 2,
    processes: int = 1,
    engine: str = LOCAL,
    device: torch.device = CPU,
) -> Extraction:
    """Extract the regions of records into a store. Records in the store are skipped, so the same command resumes.

    - progress: called with the number of records that were written or failed since the last call; False ends it.
    - threads: open images ahead of the detector, in this process.
    - processes: on the CPU, each process has its own detector and one thread, and the store's bytes are the same. With
      another `device` the detector stays in this process, and the processes open images for it.
    - engine: `ray` distributes windows of records on a cluster, `processes` at a time. All machines must find the
      images at the same paths. If a worker is lost, its unfinished windows are repeated.

    Ctrl-C keeps what was extracted. Raises RecipeError for an engine that cannot be used, and DataError if no record
    could be extracted.
    """
    _check_engine(engine, detector, device)
    result = Extraction()
    try:
        with StoreWriter(folder, detector.contract, records_per_shard) as store, ExitStack() as stack:
            reported = 0
            new = _new(records, store.done, result)
            if engine != LOCAL or (device == CPU and detector.needs_pictures and processes > 1):
                windows = _by_workers(new, detector, batch_size, processes, engine, folder)
            else:
                stack.enter_context(computing_on(detector, device))
                windows = _extracted(_images_of(new, detector, batch_size, threads, processes), detector, batch_size)
            writer = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="store"))
            writing = writer.submit(dict[str, str])
            for extracted, failed in windows:
                _settle(writing, result)
                writing = writer.submit(_add, store, extracted)  # while the next window is read
                result.written += len(extracted)
                result.failed.update(failed)
                finished = result.written + len(result.failed)
                if progress is not None and progress(finished - reported) is False:
                    _settle(writing, result)
                    return result
                reported = finished
            _settle(writing, result)
    finally:
        if folder.is_dir():
            lines = [json.dumps({"key": key, "reason": reason}) for key, reason in result.failed.items()]
            write_atomically(folder / FAILURES, "".join(f"{line}\n" for line in lines).encode())
    if not result.written and not result.already_there:
        reason = next(iter(result.failed.values()), "there are no records")
        raise DataError(f"no record was extracted to {folder}: {len(result.failed)} failed; the first reason: {reason}")
    return result


def _add(store: StoreWriter, extracted: list[tuple[Record, Regions]]) -> Failed:
    """Write records, and return those that the store refuses."""
    refused: Failed = {}
    for record, regions in extracted:
        try:
            store.add(replace(record, regions=regions, size=regions.size))
        except DataError as error:
            refused[record.key] = str(error)
    return refused


def _settle(writing: Future[Failed], result: Extraction) -> None:
    """Wait until all records that were counted as written are on disk; then correct the count."""
    refused = writing.result()
    result.written -= len(refused)
    result.failed.update(refused)


def _check_engine(engine: str, detector: Detector, device: torch.device) -> None:
    if engine not in EXTRACTING:
        raise RecipeError(f"engine {engine!r} cannot extract; {nearest(engine, EXTRACTING)}")
    if engine != LOCAL and not detector.needs_pictures:
        raise RecipeError(
            f"{detector.contract.extractor} computes nothing from images, so other machines would have no work; leave "
            f"out --engine {engine}"
        )
    if engine != LOCAL and device != CPU:
        raise RecipeError(f"workers of --engine {engine} compute on their CPUs; leave out --device {device}")


def _new(records: Iterable[Record], done: dict[str, Path | None], result: Extraction) -> Iterator[Record]:
    """Yield the records that the store lacks; count the others, and report keys that occur twice as failures."""
    before, given = dict(done), set[str]()
    for record in records:
        if record.key in given:
            result.failed.setdefault(f"{record.key} (again)", "this key occurs twice; the first of the records is kept")
        elif record.key in before and is_another(record.image, before[record.key]):
            result.failed[record.key] = (
                f"the store has another image under this key, {before[record.key]}, and not {record.image}; extract "
                "to another store, or name both in one manifest, which gives them different keys"
            )
        elif record.key in before:
            result.already_there += 1
        else:
            yield record
        given.add(record.key)


def is_another(image: Path | None, there: Path | None) -> bool:
    """Return True if both images can be read, and differ."""
    if image is None or there is None or not image.is_file() or not there.is_file() or image.samefile(there):
        return False
    return not filecmp.cmp(image, there, shallow=False)


def _by_workers(
    records: Iterator[Record], detector: Detector, batch: int, workers: int, engine: str, store: Path
) -> Iterator[Extracted]:
    """Extract in other processes. Records are grouped as in a single process, so the same images share a batch."""
    windows, sent = tee(iter(lambda: list(islice(records, batch * WINDOW)), []))
    with TemporaryDirectory(prefix=".detector.", suffix=f".diptych-{os.getpid()}.partial", dir=store) as folder:
        detector.save(Path(folder))
        if engine == LOCAL:
            made = map_in_processes(_Worker(folder, batch), sent, workers)
        else:
            worker = _Worker(folder, batch, _files_of(Path(folder)))
            made = cast("Generator[Counts, None, None]", run(worker, list(map(_as_text, sent)), engine, workers))
        with closing(made):
            for window, counts in zip(windows, made, strict=True):
                by_key = {record.key: record for record in window}
                for packed, failed in counts["windows"]:
                    yield [(replace(by_key[key], fingerprint=own), _unpacked(one)) for key, own, one in packed], failed


def _as_text(window: list[Record]) -> str:
    """Return a window in the form that an engine takes: a JSON list of records, with absolute paths of images."""
    placed = (r if r.image is None else replace(r, image=Path(os.path.abspath(r.image))) for r in window)
    return json.dumps([json.dumps(record_to_json(record), ensure_ascii=False) for record in placed])


def _files_of(folder: Path) -> dict[str, npt.NDArray[np.uint8]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): np.fromfile(path, np.uint8) for path in files}


@dataclass(frozen=True)
class _Worker:
    """Extracts windows of records in another process, with one thread."""

    folder: str  # the detector's folder
    batch: int
    # The files of `folder`, for machines that do not share it.
    files: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)

    def __call__(self, window: list[Record] | str) -> Counts:
        if isinstance(window, str):
            window = [record_from_json(text.encode("utf-8", "surrogatepass")) for text in json.loads(window)]
        extracted = _extracted(_opened(iter(window), 1, self.batch), self._detector(), self.batch)
        windows = [([(r.key, r.fingerprint, _packed(of)) for r, of in done], failed) for done, failed in extracted]
        return {"windows": windows}

    def _detector(self) -> Detector:
        if self.folder not in _DETECTORS:
            torch.set_num_threads(1)
            _DETECTORS.clear()
            with TemporaryDirectory(prefix="diptych.detector.") as copy:
                for name, content in self.files.items():
                    (Path(copy) / name).parent.mkdir(parents=True, exist_ok=True)
                    content.tofile(Path(copy) / name)
                _DETECTORS[self.folder] = load_detector(Path(copy if self.files else self.folder))
        return _DETECTORS[self.folder]


_DETECTORS: dict[str, Detector] = {}  # the one detector of a worker's process, by its folder


def _packed(regions: Regions) -> Packed:
    """Replace tensors by arrays: torch sends each tensor through a shared file, which is slower than detection."""
    return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in vars(regions).items()}


def _unpacked(values: Packed) -> Regions:
    fields: dict[str, Any] = {n: _tensor(v) if isinstance(v, np.ndarray) else v for n, v in values.items()}
    return Regions(**fields)


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    """Copy an array only if it is read-only, as in Ray's shared memory."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _images_of(
    records: Iterator[Record], detector: Detector, batch: int, threads: int, processes: int
) -> Iterator[Opened]:
    """Open the images of records for a detector in this process, by threads or by other processes."""
    if not detector.needs_pictures:
        return ((record, None) for record in records)
    return _opened(records, threads, batch) if processes == 1 else _opened_by_processes(records, batch, processes)


def _opened(records: Iterator[Record], threads: int, ahead: int) -> Iterator[Opened]:
    """Yield images in the order of their records, opened ahead by threads, which wait for the decoders."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="pictures")
    queue: deque[Future[Opened]] = deque()
    try:
        while True:
            # At least one is always under way, or an image larger than the limit would stop everything.
            room = 1 if sum(_bytes(one.result()) for one in queue if one.done()) > MOST_BYTES else ahead
            queue.extend(pool.submit(_open, record) for record in islice(records, max(0, room - len(queue))))
            if not queue:
                return
            yield queue.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _opened_by_processes(records: Iterator[Record], count: int, processes: int) -> Iterator[Opened]:
    """Open images by processes, `count` at a time, for a GPU that is faster than the threads of one process."""
    pieces = iter(lambda: list(islice(records, count)), [])
    with closing(map_in_processes(_open_each, pieces, processes)) as work:
        for opened in work:
            yield from ((record, _tensor(one) if isinstance(one, np.ndarray) else one) for record, one in opened)


def _open_each(records: list[Record]) -> list[tuple[Record, npt.NDArray[Any] | DataError | None]]:
    """Open images as arrays, for the reason in `_packed`."""
    opened = map(_open, records)
    return [(record, one.numpy() if isinstance(one, Tensor) else one) for record, one in opened]


def _bytes(opened: Opened) -> int:
    return opened[1].nbytes if isinstance(opened[1], Tensor) else 0


def _open(record: Record) -> Opened:
    """Return the image and the record with its fingerprint, or the error: one bad file must not stop the job."""
    if record.image is None:
        return record, DataError("the record names no image", key=record.key)
    try:
        pixels = shared_decoders().open(record.image)
        return replace(record, fingerprint=image_fingerprint(pixels)), as_picture(pixels)
    except DataError as error:
        return record, error


def _extracted(opened: Iterable[Opened], detector: Detector, batch: int) -> Iterator[Extracted]:
    """Detect the regions of images, a window at a time: batches are sorted by shape, results are in the given order."""
    for window in _windows(opened, batch * WINDOW):
        failed = {record.key: str(error) for record, error in window if isinstance(error, DataError)}
        readable = [(record, image) for record, image in window if not isinstance(image, DataError)]
        by_shape = sorted(range(len(readable)), key=lambda row: _shape(readable[row][1]))
        regions: dict[int, Regions] = {}
        for start in range(0, len(by_shape), batch):
            regions.update(_detected(readable, by_shape[start : start + batch], detector, failed))
        yield [(record, regions[row]) for row, (record, _) in enumerate(readable) if row in regions], failed


def _windows(opened: Iterable[Opened], most: int) -> Iterator[list[Opened]]:
    """Cut records into windows of at most `most` records and MOST_BYTES.

    A window also ends at each multiple of `most`.
    """
    window: list[Opened] = []
    waiting = 0
    for number, one in enumerate(opened, start=1):
        window.append(one)
        waiting += _bytes(one)
        if number % most == 0 or waiting > MOST_BYTES:
            yield window
            window, waiting = [], 0
    if window:
        yield window


def _detected(readable: Sequence[Readable], rows: list[int], detector: Detector, failed: Failed) -> dict[int, Regions]:
    """Return the regions by row. Images that the detector rejects go to `failed`; the rest of the batch continues."""
    batch = [readable[row] for row in rows]
    try:
        images = [image for _, image in batch if image is not None]
        return dict(zip(rows, detector.detect(images, [record for record, _ in batch]), strict=True))
    except DataError as error:
        if len(rows) == 1:
            failed[batch[0][0].key] = str(error)
            return {}
    return {k: v for row in rows for k, v in _detected(readable, [row], detector, failed).items()}


def _shape(image: Picture | None) -> tuple[float, int]:
    if image is None:
        return 0.0, 0
    height, width = image.shape[1:]
    return width / height, width
