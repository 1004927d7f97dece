"""Fill a store: detect the regions of each image once, and report the images that failed."""

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
from diptych.runtime.files import files_below, write_atomically
from diptych.runtime.processes import map_in_processes
from diptych.vision.decoder import shared_decoders
from diptych.vision.detectors.detector import Detector, Picture, computing_on
from diptych.vision.detectors.load import load_detector
from diptych.vision.fingerprints import image_fingerprint
from diptych.vision.image_files import picture_size, same_shape
from diptych.vision.pictures import as_picture

EXTRACTING = LOCAL, RAY = ("local", "ray")  # engines that can extract regions
CPU = torch.device("cpu")
WINDOW = 4  # the images of this many batches are sorted by aspect ratio together, which saves padding
MOST_BYTES = 256 * 2**20  # the decoded images in memory take at most this many bytes; one image may take 200 MB

Readable: TypeAlias = "tuple[Record, Picture | None]"  # a record and its image (None if the detector needs no images)
Opened: TypeAlias = "tuple[Record, Picture | DataError | None]"
Failed: TypeAlias = dict[str, str]  # {key of a record: why its extraction failed}
# The records of a group of batches with their regions, and the records that failed.
Extracted: TypeAlias = tuple[list[tuple[Record, Regions]], Failed]
Packed: TypeAlias = dict[str, Any]  # the fields of `Regions`, with arrays in place of tensors


@dataclass
class Extraction:
    """The result of an extraction. `failed` maps the key of each record that could not be stored to the reason."""

    written: int = 0
    already_there: int = 0
    others: int = 0  # records in the store that are not in the data
    failed: dict[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        counts = {"were there already": self.already_there, "failed": len(self.failed),
                  "of other data are in the store too": self.others}  # fmt: skip
        return ", ".join([f"{self.written} extracted", *(f"{n} {what}" for what, n in counts.items() if n)])


def extract(
    records: Iterable[Record],
    detector: Detector,
    folder: Path,
    batch_size: int = 8,
    records_per_shard: int = 1000,
    progress: Callable[[int], object] | None = None,
    threads: int = 2,
    processes: int = 1,
    engine: str = LOCAL,
    device: torch.device = CPU,
) -> Extraction:
    """Extract the regions of records into a store. Records in the store are skipped, so the same command resumes.

    - progress: called with the number of records that were written or failed since the last call. If the function
    returns False, extraction stops.
    - threads: the number of threads that open images in advance, in this process.
    - processes: on the CPU, each process runs its own detector with one thread; the store does not depend on their
      number. On another `device` the detector runs in this process, and the other processes only open images.
    - engine: `ray` distributes groups of records to `processes` workers of a Ray cluster. All machines must have the
      images at the same paths. If a worker is lost, its unfinished groups are repeated.

    After Ctrl-C the store has all records that were extracted. Raises RecipeError for an engine that cannot be used,
    and DataError if no record could be extracted.
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
                # A thread stores these regions while the next window's regions are extracted.
                writing = writer.submit(_add, store, extracted)
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
        raise DataError(f"no record was extracted to {folder} ({len(result.failed)} failed); first correct: {reason}")
    return result


def _add(store: StoreWriter, extracted: list[tuple[Record, Regions]]) -> Failed:
    """Add records to the store. Return the key of each record that it rejects, with the reason."""
    refused: Failed = {}
    for record, regions in extracted:
        try:
            store.add(replace(record, regions=regions, size=regions.size))
        except DataError as error:
            refused[record.key] = str(error)
    return refused


def _settle(writing: Future[Failed], result: Extraction) -> None:
    """Wait until the writing thread is done.

    Records that the store rejected are then counted as failed instead of written.
    """
    refused = writing.result()
    result.written -= len(refused)
    result.failed.update(refused)


def _check_engine(engine: str, detector: Detector, device: torch.device) -> None:
    if engine not in EXTRACTING:
        raise RecipeError(f"engine {engine!r} cannot extract; {nearest(engine, EXTRACTING)}")
    if engine != LOCAL and not detector.needs_pictures:
        raise RecipeError(
            f"the detector {detector.contract.extractor} does not read images, so other machines would have no work; "
            f"leave out --engine {engine}"
        )
    if engine != LOCAL and device != CPU:
        raise RecipeError(f"workers of --engine {engine} compute on their CPUs; leave out --device {device}")


def _new(records: Iterable[Record], done: dict[str, Path | None], result: Extraction) -> Iterator[Record]:
    """Yield the records that are not in the store yet, and count the others.

    A record fails if its key occurred before, or if the store has another image under this key.
    """
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
    result.others = len(before.keys() - given)


def is_another(image: Path | None, there: Path | None) -> bool:
    """Return True if the images are two readable files with different bytes."""
    if image is None or there is None or not image.is_file() or not there.is_file() or image.samefile(there):
        return False
    return not filecmp.cmp(image, there, shallow=False)


def _by_workers(
    records: Iterator[Record], detector: Detector, batch: int, workers: int, engine: str, store: Path
) -> Iterator[Extracted]:
    """Extract in other processes. Records are grouped as in a single process, so batches have the same images."""
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
    """Return a window of records as the text that workers receive: a JSON list, with absolute paths of images."""
    placed = (r if r.image is None else replace(r, image=Path(os.path.abspath(r.image))) for r in window)
    return json.dumps([json.dumps(record_to_json(record), ensure_ascii=False) for record in placed])


def _files_of(folder: Path) -> dict[str, npt.NDArray[np.uint8]]:
    files = filter(Path.is_file, files_below(folder))
    return {path.relative_to(folder).as_posix(): np.fromfile(path, np.uint8) for path in files}


@dataclass(frozen=True)
class _Worker:
    """Extracts windows of records in another process, with one thread."""

    folder: str  # path of the detector's folder
    batch: int
    # {name of a file of the detector: its content}, for machines that cannot read `folder`.
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


_DETECTORS: dict[str, Detector] = {}  # {folder: detector}; a worker process holds at most one


def _packed(regions: Regions) -> Packed:
    """Convert tensors to arrays, because torch makes a shared file for each tensor that is sent to another process."""
    return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in vars(regions).items()}


def _unpacked(values: Packed) -> Regions:
    fields: dict[str, Any] = {n: _tensor(v) if isinstance(v, np.ndarray) else v for n, v in values.items()}
    return Regions(**fields)


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    """Convert an array to a tensor. Read-only arrays, such as those in Ray's shared memory, are copied."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _images_of(
    records: Iterator[Record], detector: Detector, batch: int, threads: int, processes: int
) -> Iterator[Opened]:
    """Open the images of records in threads (if `processes` is 1) or in other processes."""
    if not detector.needs_pictures:
        return ((record, _misplaced(record)) for record in records)
    return _opened(records, threads, batch) if processes == 1 else _opened_by_processes(records, batch, processes)


def _opened(records: Iterator[Record], threads: int, ahead: int) -> Iterator[Opened]:
    """Yield the opened image of each record in order. Threads open up to `ahead` images in advance."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="pictures")
    queue: deque[Future[Opened]] = deque()
    try:
        while True:
            # At least one image is always submitted; otherwise an image larger than MOST_BYTES would block the queue.
            room = 1 if sum(_bytes(one.result()) for one in queue if one.done()) > MOST_BYTES else ahead
            queue.extend(pool.submit(_open, record) for record in islice(records, max(0, room - len(queue))))
            if not queue:
                return
            yield queue.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _misplaced(record: Record) -> DataError | None:
    """Return the error if the record's boxes do not fit the shape of its image, else None. Only the header is read."""
    if record.image is None or record.size is None or not record.marked("box"):
        return None
    try:
        wrong = misplaced_boxes(record, picture_size(record.image))
    except DataError:  # an unreadable image is reported elsewhere
        return None
    return None if wrong is None else DataError(wrong, key=record.key)


def _opened_by_processes(records: Iterator[Record], count: int, processes: int) -> Iterator[Opened]:
    """Open images in other processes, `count` records per call. Threads of one process would be too slow for a GPU."""
    pieces = iter(lambda: list(islice(records, count)), [])
    with closing(map_in_processes(_open_each, pieces, processes)) as work:
        for opened in work:
            yield from ((record, _tensor(one) if isinstance(one, np.ndarray) else one) for record, one in opened)


def _open_each(records: list[Record]) -> list[tuple[Record, npt.NDArray[Any] | DataError | None]]:
    """Open the images of records as arrays, because sending tensors to another process is slow (see `_packed`)."""
    opened = map(_open, records)
    return [(record, one.numpy() if isinstance(one, Tensor) else one) for record, one in opened]


def _bytes(opened: Opened) -> int:
    return opened[1].nbytes if isinstance(opened[1], Tensor) else 0


def _open(record: Record) -> Opened:
    """Return the record with its image's fingerprint, and the image.

    If the image cannot be opened, return the error in its place, because one bad file must not stop the job.
    """
    if record.image is None:
        return record, DataError("the record names no image", key=record.key)
    try:
        pixels = shared_decoders().open(record.image)
        if (wrong := misplaced_boxes(record, pixels.shape[1::-1])) is not None:
            raise DataError(wrong, key=record.key)
        return replace(record, fingerprint=image_fingerprint(pixels)), as_picture(pixels)
    except DataError as error:
        return record, error


def misplaced_boxes(record: Record, size: tuple[int, ...]) -> str | None:
    """Return why the record's boxes do not fit an image of `size` (width, height), or None if they fit."""
    declared, (width, height) = record.size, size
    if declared is None or same_shape(declared, (width, height)) or not record.marked("box"):
        return None
    turned = ", as if it were rotated" if same_shape(declared[::-1], (width, height)) else ""
    return (
        f"the data has boxes for an image of {declared[0]} x {declared[1]} pixels, but the file has {width} x {height}"
        f"{turned}; correct `width` and `height` and the boxes"
    )


def _extracted(opened: Iterable[Opened], detector: Detector, batch: int) -> Iterator[Extracted]:
    """Yield the regions for each window of records, in their order.

    Within a window, images are batched by aspect ratio.
    """
    for window in _windows(opened, batch * WINDOW):
        failed = {record.key: str(error) for record, error in window if isinstance(error, DataError)}
        readable = [(record, image) for record, image in window if not isinstance(image, DataError)]
        by_shape = sorted(range(len(readable)), key=lambda row: _shape(readable[row][1]))
        regions: dict[int, Regions] = {}
        for start in range(0, len(by_shape), batch):
            regions.update(_detected(readable, by_shape[start : start + batch], detector, failed))
        yield [(record, regions[row]) for row, (record, _) in enumerate(readable) if row in regions], failed


def _windows(opened: Iterable[Opened], most: int) -> Iterator[list[Opened]]:
    """Cut records into windows of at most `most` records.

    A window ends early when its images exceed MOST_BYTES. Windows also end at each multiple of `most` records of the
    input, so an early end does not shift later windows.
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
    """Return the regions for each of `rows`, which are indices into `readable`.

    Images that the detector rejects are added to `failed`, and the others are tried again one by one.
    """
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
