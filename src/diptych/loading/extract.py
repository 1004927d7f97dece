"""Fill a store: look at each picture once, keep what was seen, name what could not be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from torch import Tensor

from diptych.core import Record
from diptych.errors import DataError
from diptych.files import write_atomically
from diptych.loading.store import FAILURES, StoreWriter
from diptych.vision.eyes import Eyes, Picture
from diptych.vision.pictures import open_picture


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
) -> Extraction:
    """Records that the store has are passed over, so the same command goes on where it was stopped.

    Raises DataError where not one record could be extracted.
    """
    result = Extraction()
    with StoreWriter(folder, eyes.contract, records_per_shard) as store, ThreadPoolExecutor(2) as opener:
        new = _not_done(records, store.done, result)
        while batch := list(islice(new, batch_size)):
            opened = list(opener.map(_open, batch)) if eyes.looks else [None] * len(batch)
            for record, error in zip(batch, opened, strict=True):
                if isinstance(error, DataError):
                    result.failed[record.key] = str(error)
            good = [record for record in batch if record.key not in result.failed]
            for record, regions in zip(good, eyes.see([p for p in opened if isinstance(p, Tensor)], good), strict=True):
                store.add(replace(record, regions=regions, size=regions.size))
            result.written += len(good)
            if progress is not None:
                progress(len(batch))
    _write_failures(folder, result.failed)
    if not result.written and not result.already_there:
        reason = next(iter(result.failed.values()), "there are no records")
        raise DataError(f"nothing could be extracted to {folder}: {len(result.failed)} failed; the first: {reason}")
    return result


def _not_done(records: Iterable[Record], done: set[str], result: Extraction) -> Iterator[Record]:
    before = frozenset(done)
    for record in records:
        if record.key in before:
            result.already_there += 1
        else:
            yield record


def _write_failures(folder: Path, failed: dict[str, str]) -> None:
    lines = [json.dumps({"key": key, "reason": reason}, ensure_ascii=False) for key, reason in failed.items()]
    write_atomically(folder / FAILURES, "".join(f"{line}\n" for line in lines).encode())


def _open(record: Record) -> Picture | DataError:
    """The picture, or why not: one bad file must not stop the job."""
    if record.picture is None:
        return DataError("the record names no picture", key=record.key)
    try:
        return open_picture(record.picture)
    except DataError as error:
        return error
