"""Fill a store: extract the regions of each picture once, and name the pictures that failed."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
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
from diptych.vision.detectors.detector import Detector, Picture, computing_on
from diptych.vision.detectors.load import load_detector
from diptych.vision.pictures import open_picture

LOCAL, RAY = "local", "ray"
EXTRACTING = (LOCAL, RAY)  # engines
CPU = torch.device("cpu")
WINDOW = 4  # batches whose pictures are sorted by shape, so that a detector that pads a batch pads little
MOST_BYTES = 256 * 2**20  # of opened pictures that wait: some are as large as 200 MB

Whole: TypeAlias = "tuple[Record, Picture | None]"  # None where the detector reads the record alone
Opened: TypeAlias = "tuple[Record, Picture | DataError | None]"
Failed: TypeAlias = dict[str, str]  # by key: why
Seen: TypeAlias = tuple[list[tuple[Record, Regions]], Failed]  # of a window
Packed: TypeAlias = dict[str, Any]  # the fields of regions, arrays for tensors


@dataclass
class Extraction:
    """What came of it. `failed` has the reason for each record that is not in the store."""

    written: int = 0
    already_there: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        parts = [f"{self.written} extracted"]
        if self.already_there:
            parts.append(f"{self.already_there} were there already")
        if self.failed:
            parts.append(f"{len(self.failed)} failed")
        return ", ".join(parts)


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
    """Records that the store has are passed over, so the same command goes on where it was stopped.

    `progress` is told how many more records are dealt with. Ctrl-C keeps what was seen so far. With `processes` over 1
    each has its own detector, on the CPU, and one thread; what is written is the same. On another `device` the one
    detector is there, and the processes open pictures for it. On another `engine` (`ray`: on a cluster, whose machines
    have to see the pictures at the same places) `processes` is how many windows are under way at once, and a lost
    worker costs its own, which is done again. Raises DataError where not one record could be extracted.
    """
    if engine not in EXTRACTING:
        raise RecipeError(f"no engine {engine!r} extracts; {nearest(engine, EXTRACTING)}")
    if engine != LOCAL and not detector.needs_pictures:
        raise RecipeError(
            f"{detector.contract.extractor} reads no pictures, so that there is nothing to share out; leave out "
            f"--engine {engine}"
        )
    if engine != LOCAL and device != CPU:
        raise RecipeError(f"workers of --engine {engine} compute on their processors; leave out --device {device}")
    result = Extraction()
    try:
        with StoreWriter(folder, detector.contract, records_per_shard) as store, ExitStack() as stack:
            reported = 0
            new = _new(records, store.done, result)
            if engine != LOCAL:
                seen = _on_engine(new, detector, batch_size, processes, engine)
            elif device == CPU and detector.needs_pictures and processes > 1:
                seen = _shared(new, detector, batch_size, processes, folder)
            else:
                stack.enter_context(computing_on(detector, device))
                seen = _here(new, detector, batch_size, threads, processes)
            for found, failed in seen:
                for record, regions in found:
                    result.written += _added(replace(record, regions=regions, size=regions.size), store, failed)
                result.failed.update(failed)
                dealt_with = result.written + len(result.failed)
                if progress is not None:
                    progress(dealt_with - reported)
                reported = dealt_with
    finally:
        if folder.is_dir():
            _write_failures(folder, result.failed)
    if not result.written and not result.already_there:
        reason = next(iter(result.failed.values()), "there are no records")
        raise DataError(f"nothing could be extracted to {folder}: {len(result.failed)} failed; the first: {reason}")
    return result


def _new(records: Iterable[Record], done: dict[str, Path | None], result: Extraction) -> Iterator[Record]:
    before, given = dict(done), set[str]()
    for record in records:
        if record.key in given:
            result.failed.setdefault(f"{record.key} (again)", "this key occurs twice; the first of the records is kept")
        elif record.key in before and is_another(record.image, before[record.key]):
            result.failed[record.key] = (
                f"the store has another picture under this name, {before[record.key]}, and not {record.image}; extract "
                "to another store, or name both in one manifest, which keeps them apart"
            )
        elif record.key in before:
            result.already_there += 1
        else:
            yield record
        given.add(record.key)


def is_another(image: Path | None, there: Path | None) -> bool:
    """Whether both pictures can be read, and differ."""
    if image is None or there is None or not image.is_file() or not there.is_file() or image.samefile(there):
        return False
    return not filecmp.cmp(image, there, shallow=False)


def _here(new: Iterator[Record], detector: Detector, batch: int, threads: int, processes: int) -> Iterator[Seen]:
    """The detector is in this process; pictures are opened in its threads or in other processes."""
    opened: Iterator[Opened]
    if not detector.needs_pictures:
        opened = ((record, None) for record in new)
    else:
        opened = _opened(new, threads, batch) if processes == 1 else _opened_apart(new, batch, processes)
    return _Extractor(detector, batch).windows(opened)


@dataclass(frozen=True)
class _Extractor:
    """Regions of pictures, detected a window at a time."""

    detector: Detector
    batch: int

    def windows(self, opened: Iterable[Opened]) -> Iterator[Seen]:
        for window in _windows(opened, self.batch * WINDOW):
            failed = {record.key: str(why) for record, why in window if isinstance(why, DataError)}
            whole = [(record, picture) for record, picture in window if not isinstance(picture, DataError)]
            yield _seen(whole, self.detector, self.batch, failed), failed


def _shared(records: Iterator[Record], detector: Detector, batch: int, processes: int, store: Path) -> Iterator[Seen]:
    """A piece of work is a window of records, so that the same pictures share a batch as in one process."""
    with TemporaryDirectory(prefix=".detector.", suffix=f".{os.getpid()}.partial", dir=store) as folder:
        detector.save(Path(folder))
        pieces = iter(lambda: list(islice(records, batch * WINDOW)), [])
        work = map_in_processes(partial(_extract_shard, folder, batch), pieces, processes)
        with closing(work):
            for windows in work:
                for found, failed in windows:
                    yield [(record, _unpacked(regions)) for record, regions in found], failed


def _extract_shard(
    detector: str, batch: int, records: list[Record]
) -> list[tuple[list[tuple[Record, Packed]], Failed]]:
    seen = _Extractor(_detector_in(detector), batch).windows(_opened(iter(records), 1, batch))
    return [([(record, _packed(regions)) for record, regions in found], failed) for found, failed in seen]


def _on_engine(records: Iterator[Record], detector: Detector, batch: int, workers: int, engine: str) -> Iterator[Seen]:
    """The same windows as in one process; the names of its shards are their records as text."""
    with TemporaryDirectory(prefix="diptych.detector.") as folder:
        detector.save(Path(folder))
        work = _RemoteShard.of(Path(folder), batch)
    windows = list(iter(lambda: list(islice(records, batch * WINDOW)), []))
    made = run(work, [_as_text(window) for window in windows], engine, workers)
    with closing(cast("Generator[Any]", made)):
        for window, counts in zip(windows, made, strict=True):
            known = {record.key: record for record in window}
            for found, failed in counts[SEEN]:
                yield [(known[key], _unpacked(regions)) for key, regions in found], failed


def _as_text(window: list[Record]) -> str:
    """With pictures where every machine finds them."""
    placed = (r if r.image is None else replace(r, image=Path(os.path.abspath(r.image))) for r in window)
    return json.dumps([json.dumps(record_to_json(record), ensure_ascii=False) for record in placed])


@dataclass(frozen=True)
class _RemoteShard:
    """It carries the detector's files, so that no folder has to be shared."""

    files: dict[str, npt.NDArray[np.uint8]]  # by their names in the folder
    digest: str
    batch: int

    @classmethod
    def of(cls, folder: Path, batch: int) -> _RemoteShard:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): np.fromfile(path, np.uint8) for path in paths}
        hashed = hashlib.sha256()
        for name, content in files.items():
            hashed.update(f"{name} {len(content)}\n".encode() + content.tobytes())
        return cls(files, hashed.hexdigest(), batch)

    def __call__(self, name: str) -> Counts:
        if self.digest not in _DETECTORS:
            with TemporaryDirectory(prefix="diptych.detector.") as folder:
                for file, content in self.files.items():
                    (Path(folder) / file).parent.mkdir(parents=True, exist_ok=True)
                    content.tofile(Path(folder) / file)
                torch.set_num_threads(1)
                _DETECTORS.clear()
                _DETECTORS[self.digest] = load_detector(Path(folder))
        records = [record_from_json(text.encode("utf-8", "surrogatepass")) for text in json.loads(name)]
        opened = _opened(iter(records), 1, self.batch)
        seen = _Extractor(_DETECTORS[self.digest], self.batch).windows(opened)
        return {SEEN: [([(r.key, _packed(regions)) for r, regions in found], failed) for found, failed in seen]}


_DETECTORS: dict[str, Detector] = {}  # of a worker's process, by its files
SEEN = "seen"


def _packed(regions: Regions) -> Packed:
    """With arrays for tensors, of which torch would send each through a shared file: slower than detection."""
    return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in vars(regions).items()}


def _unpacked(values: Packed) -> Regions:
    fields: dict[str, Any] = {n: _tensor(v) if isinstance(v, np.ndarray) else v for n, v in values.items()}
    return Regions(**fields)


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    """What lies in Ray's shared memory cannot be written to: it is copied."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


@cache
def _detector_in(folder: str) -> Detector:
    """In a process of its own, which has one core."""
    torch.set_num_threads(1)
    return load_detector(Path(folder))


def _opened(records: Iterator[Record], threads: int, ahead: int) -> Iterator[Opened]:
    """Pictures in the order of their records, opened by threads ahead of time: Pillow decodes without Python's lock."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="pictures")
    queue: deque[Future[Opened]] = deque()
    try:
        while True:
            # One may always be under way, or a picture larger than the limit would stop everything.
            room = 1 if sum(map(_waiting_bytes, queue)) > MOST_BYTES else ahead
            queue.extend(pool.submit(_open, record) for record in islice(records, max(0, room - len(queue))))
            if not queue:
                return
            yield queue.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _opened_apart(records: Iterator[Record], count: int, processes: int) -> Iterator[Opened]:
    """The same by processes, `count` at a time, for a device that reads faster than threads of one process open."""
    pieces = iter(lambda: list(islice(records, count)), [])
    with closing(map_in_processes(_open_each, pieces, processes)) as work:
        for opened in work:
            yield from ((record, _tensor(one) if isinstance(one, np.ndarray) else one) for record, one in opened)


def _open_each(records: list[Record]) -> list[tuple[Record, npt.NDArray[Any] | DataError | None]]:
    """With arrays for tensors, as in `_packed`."""
    opened = map(_open, records)
    return [(record, one.numpy() if isinstance(one, Tensor) else one) for record, one in opened]


def _waiting_bytes(future: Future[Opened]) -> int:
    return _bytes(future.result()) if future.done() else 0


def _bytes(opened: Opened) -> int:
    return opened[1].nbytes if isinstance(opened[1], Tensor) else 0


def _open(record: Record) -> Opened:
    """The picture, or why not: one bad file must not stop the job."""
    if record.image is None:
        return record, DataError("the record names no picture", key=record.key)
    try:
        return record, open_picture(record.image)
    except DataError as error:
        return record, error
    except Exception as error:  # of memory, or of a reader: it is this record's
        return record, DataError(f"cannot read the picture {record.image}: {type(error).__name__}: {error}")


def _windows(opened: Iterable[Opened], most: int) -> Iterator[list[Opened]]:
    """A window ends after `most` records, whatever came before, or where its pictures are too large to wait."""
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


def _seen(
    window: list[Whole], detector: Detector, batch_size: int, failed: dict[str, str]
) -> list[tuple[Record, Regions]]:
    """In the window's order, though extracted in the order of shapes."""
    order = sorted(range(len(window)), key=lambda i: _shape(window[i][1]))
    regions: dict[int, Regions] = {}
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        regions.update(_see([window[row] for row in rows], rows, detector, failed))
    return [(record, regions[row]) for row, (record, _) in enumerate(window) if row in regions]


def _see(batch: list[Whole], rows: list[int], detector: Detector, failed: dict[str, str]) -> dict[int, Regions]:
    """By row. What the detector refuse is named, and does not stop the others of its batch."""
    try:
        pictures = [picture for _, picture in batch if picture is not None]
        return dict(zip(rows, detector.detect(pictures, [record for record, _ in batch]), strict=True))
    except DataError as error:
        if len(batch) == 1:
            failed[batch[0][0].key] = str(error)
            return {}
    return {k: v for one, row in zip(batch, rows, strict=True) for k, v in _see([one], [row], detector, failed).items()}


def _shape(picture: Picture | None) -> tuple[float, int]:
    if picture is None:
        return 0.0, 0
    height, width = picture.shape[1:]
    return width / height, width


def _added(record: Record, store: StoreWriter, failed: dict[str, str]) -> bool:
    try:
        store.add(record)
    except DataError as error:
        failed[record.key] = str(error)
        return False
    return True


def _write_failures(folder: Path, failed: dict[str, str]) -> None:
    lines = [json.dumps({"key": key, "reason": reason}) for key, reason in failed.items()]
    write_atomically(folder / FAILURES, "".join(f"{line}\n" for line in lines).encode())
