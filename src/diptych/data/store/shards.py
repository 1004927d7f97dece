"""What a shard of a store holds, and whether one does: checksums tell damage, not who wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diptych.runtime.errors import DataError

TABLES = ("ends", "word_ends", "checks", "word_checks", "sizes")
PER_REGION = ("boxes", "scores", "classes", "features", "masks")
KINDS = {
    "boxes": torch.float32, "scores": torch.float32, "classes": torch.float16, "features": torch.float16,
    "masks": torch.bool, "whole": torch.float16,
}  # fmt: skip
# Beyond the rows; None: any number.
SHAPES: dict[str, tuple[int | None, ...]] = {
    "boxes": (4,), "scores": (), "classes": (None,), "features": (None,), "masks": (None, None), "whole": (None,),
}  # fmt: skip
NAME = re.compile(r"shard-\d{5,9}\.safetensors")
MOST_RECORDS = 1_000_000  # of a shard


def refuse_shards(shards: Any) -> None:
    """Raises ValueError for what is no list of shards, as the index of a store has it."""
    if not isinstance(shards, list):
        raise ValueError("no list of shards")
    for one in shards:
        if not (isinstance(one, dict) and isinstance(one.get("name"), str) and NAME.fullmatch(one["name"])):
            raise ValueError(f"no name of a shard of this folder: {one!r:.100}")
        if type(one.get("records")) is not int or not 0 < one["records"] <= MOST_RECORDS:
            raise ValueError(f"{one['name']}: no number of records: {one.get('records')!r:.50}")
        if type(one.get("check")) is not int:
            raise ValueError(f"{one['name']}: no check: {one.get('check')!r:.50}")
    if len({one["name"] for one in shards}) < len(shards):
        raise ValueError("a shard twice")


def refuse_tables(tables: Mapping[str, Tensor], records: int, path: Path) -> None:
    """Raises DataError where one is of another type or size, or its ends do not go up to the end."""
    for name in TABLES:
        wanted = (records, 2) if name == "sizes" else (records,)
        _refuse_unlike(name, tables[name], torch.int64, wanted, path)
    _refuse_unlike("words", tables["words"], torch.uint8, (len(tables["words"].view(-1)),), path)
    for name in ("ends", "word_ends"):
        if bool((tables[name].diff(prepend=tables[name].new_zeros(1)) < 0).any()):
            raise _strange(path, f"its {name} go down")
    if int(tables["word_ends"][-1]) != len(tables["words"]):
        raise _strange(path, "its words end elsewhere")
    if bool((tables["sizes"] < 1).any()):
        raise _strange(path, "a picture has no size")


def refuse_columns(columns: Mapping[str, Tensor], regions: int, records: int, path: Path) -> None:
    """Raises DataError where one is missing, or of another type or size."""
    if missing := {"boxes", "scores"} - columns.keys():
        raise _strange(path, f"it has no {missing.pop()}")
    for name, column in columns.items():
        rows = records if name == "whole" else regions
        _refuse_unlike(name, column, KINDS[name], (rows, *SHAPES[name]), path)


def _refuse_unlike(name: str, found: Tensor, kind: torch.dtype, shape: tuple[int | None, ...], path: Path) -> None:
    alike = len(found.shape) == len(shape) and all(b in (None, a) for a, b in zip(found.shape, shape, strict=True))
    if found.dtype != kind or not alike:
        wanted = " x ".join("any" if side is None else str(side) for side in shape)
        raise _strange(path, f"{name} is {tuple(found.shape)} of {found.dtype}, wanted {wanted} of {kind}")


def _strange(path: Path, what: str) -> DataError:
    return DataError(f"{path} is no shard that Diptych writes: {what}; delete {path.parent} and extract again")
