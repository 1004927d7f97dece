"""Fill a store: look at each picture once, keep what was seen, name what could not be."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from torch import Tensor

from diptych.core import Record, Regions
from diptych.errors import DataError
from diptych.files import write_atomically
from diptych.loading.store import FAILURES, StoreWriter
from diptych.vision.eyes import Eyes, Picture
from diptych.vision.pictures import open_picture

WINDOW = 4  # batches whose pictures are sorted by shape, so that a detector that pads a batch pads little
MOST_BYTES = 256 * 2**20  # of opened pictures that wait: some are as large as 200 MB

Opened: TypeAlias = "tuple[Record, Picture | None]"


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
    eyes: Eyes,
    folder: Path,
    batch_size: int = 16,
    records_per_shard: int = 1000,
    progress: Callable[[int], object] | None = None,
    threads: int = 2,
) -> Extraction:
    """Records that the store has are passed over, so the same command goes on where it was stopped.

    `progress` is told how many more records are dealt with. Ctrl-C keeps what was seen so far. Raises DataError where
    not one record could be extracted.
    """
    result = Extraction()
    try:
        with StoreWriter(folder, eyes.contract, records_per_shard) as store:
            told = 0
            new = _new(records, store.done, result)
            opened = _opened(new, threads, ahead=batch_size, result=result) if eyes.looks else ((r, None) for r in new)
            for window in _windows(opened, batch_size * WINDOW):
                for record, regions in _seen(window, eyes, batch_size, result):
                    store.add(replace(record, regions=regions, size=regions.size))
                    result.written += 1
                dealt_with = result.written + len(result.failed)
                if progress is not None:
                    progress(dealt_with - told)
                told = dealt_with
    finally:
        if folder.is_dir():
            _write_failures(folder, result.failed)
    if not result.written and not result.already_there:
        reason = next(iter(result.failed.values()), "there are no records")
        raise DataError(f"nothing could be extracted to {folder}: {len(result.failed)} failed; the first: {reason}")
    return result


def _new(records: Iterable[Record], done: set[str], result: Extraction) -> Iterator[Record]:
    before, given = frozenset(done), set[str]()
    for record in records:
        if record.key in given:
            result.failed.setdefault(f"{record.key} (again)", "this key occurs twice; the first of the records is kept")
        elif record.key in before:
            result.already_there += 1
        else:
            yield record
        given.add(record.key)


def _opened(records: Iterator[Record], threads: int, ahead: int, result: Extraction) -> Iterator[Opened]:
    """Pictures in the order of their records, opened by threads ahead of time: Pillow decodes without Python's lock."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="pictures")
    queue: deque[Future[tuple[Record, Picture | DataError]]] = deque()
    try:
        while True:
            # One may always be under way, or a picture larger than the limit would stop everything.
            room = 1 if sum(map(_waiting_bytes, queue)) > MOST_BYTES else ahead
            queue.extend(pool.submit(_open, record) for record in islice(records, max(0, room - len(queue))))
            if not queue:
                return
            record, picture = queue.popleft().result()
            if isinstance(picture, DataError):
                result.failed[record.key] = str(picture)
            else:
                yield record, picture
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _waiting_bytes(future: Future[tuple[Record, Picture | DataError]]) -> int:
    if not future.done():
        return 0
    picture = future.result()[1]
    return picture.nbytes if isinstance(picture, Tensor) else 0


def _open(record: Record) -> tuple[Record, Picture | DataError]:
    """The picture, or why not: one bad file must not stop the job."""
    if record.picture is None:
        return record, DataError("the record names no picture", key=record.key)
    try:
        return record, open_picture(record.picture)
    except DataError as error:
        return record, error


def _windows(opened: Iterable[Opened], most: int) -> Iterator[list[Opened]]:
    window: list[Opened] = []
    waiting = 0
    for one in opened:
        window.append(one)
        waiting += one[1].nbytes if one[1] is not None else 0
        if len(window) == most or waiting > MOST_BYTES:
            yield window
            window, waiting = [], 0
    if window:
        yield window


def _seen(window: list[Opened], eyes: Eyes, batch_size: int, result: Extraction) -> list[tuple[Record, Regions]]:
    """In the window's order, though looked at in the order of shapes."""
    order = sorted(range(len(window)), key=lambda i: _shape(window[i][1]))
    regions: dict[int, Regions] = {}
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        regions.update(_see([window[row] for row in rows], rows, eyes, result))
    return [(record, regions[row]) for row, (record, _) in enumerate(window) if row in regions]


def _see(batch: list[Opened], rows: list[int], eyes: Eyes, result: Extraction) -> dict[int, Regions]:
    """By row. What the eyes refuse is named, and does not stop the others of its batch."""
    try:
        pictures = [picture for _, picture in batch if picture is not None]
        return dict(zip(rows, eyes.see(pictures, [record for record, _ in batch]), strict=True))
    except DataError as error:
        if len(batch) == 1:
            result.failed[batch[0][0].key] = str(error)
            return {}
    return {k: v for one, row in zip(batch, rows, strict=True) for k, v in _see([one], [row], eyes, result).items()}


def _shape(picture: Picture | None) -> tuple[float, int]:
    if picture is None:
        return 0.0, 0
    height, width = picture.shape[1:]
    return width / height, width


def _write_failures(folder: Path, failed: dict[str, str]) -> None:
    lines = [json.dumps({"key": key, "reason": reason}, ensure_ascii=False) for key, reason in failed.items()]
    write_atomically(folder / FAILURES, "".join(f"{line}\n" for line in lines).encode())
