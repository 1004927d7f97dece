"""Arrow files of Hugging Face's LXMERT extraction. Rows are padded to a fixed number, and boxes are fractions.

`preds_per_image` is the number of valid rows. `sizes` is the size of the resized image, so the size in the record takes
precedence.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from diptych.runtime.errors import DataError
from diptych.vision.features.raw import Array, Listing, Raw, Unit, each_whole, needed, numbered, read_as_data, refuse

COLUMNS = ("img_id", "roi_features", "boxes", "preds_per_image")
AGAIN = "download the file again"


@dataclass(frozen=True)
class ArrowTable:
    path: Path
    problems: list[str] = field(default_factory=list, compare=False)  # a message for each damaged batch or row

    @cached_property
    def batches(self) -> list[Any]:
        """Return the record batches of the memory-mapped file. They use no memory until they are read."""
        pyarrow, ipc = needed("pyarrow", f"{self.path.name}, an Arrow file,"), needed("pyarrow.ipc", "an Arrow file")
        there = list[Any]()
        try:
            mapped = pyarrow.memory_map(str(self.path))
            try:
                reader = ipc.open_stream(mapped)
            except pyarrow.ArrowInvalid:
                mapped.seek(0)
                file = ipc.open_file(mapped)
                reader = map(file.get_batch, range(file.num_record_batches))
            there.extend(reader)
        except (pyarrow.ArrowException, OSError) as error:
            wrong = f"{self.path}: found no Arrow file that can be read ({error}); {AGAIN}"
            if not there:
                raise DataError(wrong) from None
            self.problems.append(f"after {len(there)} batches {wrong}")

        def whole(batch: Any) -> Any:
            with read_as_data(str(self.path)):
                batch.validate(full=True)  # an array with offsets beyond its end would crash the process
            return batch

        batches = each_whole(there, whole, self.problems)
        for batch in batches[:1]:
            if missing := [name for name in COLUMNS if name not in batch.schema.names]:
                refuse(str(self.path), f"the columns {', '.join(batch.schema.names)}", f"also {', '.join(missing)}")
        return batches

    @cached_property
    def places(self) -> list[tuple[str, tuple[int, int]]]:
        rows = [
            (value, (number, row))
            for number, batch in enumerate(self.batches)
            for row, value in enumerate(batch.column("img_id").to_pylist())
        ]
        if missing := [place for value, place in rows if value is None]:
            self.problems.append(f"{self.path}: {len(missing)} rows without `img_id` are left out")
        return [(str(value), place) for value, place in rows if value is not None]

    @cached_property
    def by_name(self) -> dict[str, tuple[int, int]]:
        return numbered(self.places)

    def names(self) -> Iterable[str]:
        return [name for name, _ in self.places]

    def read(self, name: str) -> Raw:
        number, row = self.by_name[name]
        batch, where = self.batches[number], f"{self.path}, {name}"
        there = batch.schema.names
        rows = int(batch.column("preds_per_image")[row].as_py() or 0)
        features, boxes = (_values(batch, column, row, where) for column in ("roi_features", "boxes"))
        scores = _values(batch, "obj_probs", row, where) if "obj_probs" in there else None
        height, width = _values(batch, "sizes", row, where) if "sizes" in there else (1, 1)
        if not 0 < rows <= len(features):
            refuse(where, f"`preds_per_image` {rows} of {len(features)} rows", f"1 to {len(features)}", AGAIN)
        return Raw(where, features[:rows], boxes[:rows], (round(float(width)), round(float(height))), fractions=True,
                   scores=None if scores is None else scores[:rows])  # fmt: skip


def _values(batch: Any, column: str, row: int, where: str) -> Array:
    """Return a cell as an array, without converting it to Python numbers.

    The cell holds a list, or a list of lists of equal length.
    """
    cell = batch.column(column).slice(row, 1)
    cell = getattr(cell, "storage", cell).flatten()  # the package `datasets` stores lists in extension types
    rows = len(cell)
    nested = hasattr(cell, "flatten") and hasattr(cell.type, "value_type")
    numbers = np.asarray((cell.flatten() if nested else cell).to_numpy(zero_copy_only=False))
    if nested and (not rows or numbers.size % rows):
        refuse(where, f"`{column}` of {numbers.size} numbers in {rows} rows", "the same number in each row", AGAIN)
    return numbers.reshape(rows, -1) if nested else numbers


def units(listing: Listing) -> list[Unit]:
    return [ArrowTable(path) for path in listing.ending(".arrow")]
