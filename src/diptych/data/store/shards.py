"""What a shard of a store holds: its entry in the index, its tensors with their types and shapes, and checksums.

A checksum finds damage and not who wrote the bytes, so what is read is held against types and shapes too.
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from msgspec import Meta, Struct
from torch import Tensor

from diptych.runtime.errors import DataError

TABLES = ("ends", "word_ends", "checks", "word_checks", "sizes")
PER_REGION = ("boxes", "scores", "classes", "features", "masks")
# Of each tensor what it has a row for, its type, and its shape beyond the rows; None: any number.
LAYOUT: dict[str, tuple[str, torch.dtype, tuple[int | None, ...]]] = {
    **dict.fromkeys(TABLES, ("records", torch.int64, ())),
    "sizes": ("records", torch.int64, (2,)),
    "words": ("bytes", torch.uint8, ()),
    "boxes": ("regions", torch.float32, (4,)),
    "scores": ("regions", torch.float32, ()),
    "classes": ("regions", torch.float16, (None,)),
    "features": ("regions", torch.float16, (None,)),
    "masks": ("regions", torch.bool, (None, None)),
    "whole": ("records", torch.float16, (None,)),
}


class ShardEntry(Struct):
    """A shard in the index of a store."""

    name: Annotated[str, Meta(pattern=r"^shard-\d{5,9}\.safetensors\Z")]
    records: Annotated[int, Meta(ge=1, le=1_000_000)]
    check: int  # of its tables


def refuse_tables(tables: Mapping[str, Tensor], records: int, path: Path) -> None:
    """Raises DataError where one is of another type or size, or its ends do not go up to the end."""
    _refuse_unlike({name: tables[name] for name in TABLES}, {"records": records}, path)
    for name in ("ends", "word_ends"):
        if bool((tables[name].diff(prepend=tables[name].new_zeros(1)) < 0).any()):
            raise _strange(path, f"its {name} go down")
    if bool((tables["sizes"] < 1).any()):
        raise _strange(path, "a picture has no size")
    _refuse_unlike({"words": tables["words"]}, {"bytes": int(tables["word_ends"][-1])}, path)


def refuse_columns(columns: Mapping[str, Tensor], regions: int, records: int, path: Path) -> None:
    """Raises DataError where one is missing, or of another type or size."""
    if missing := {"boxes", "scores"} - columns.keys():
        raise _strange(path, f"it has no {missing.pop()}")
    _refuse_unlike(columns, {"regions": regions, "records": records}, path)


def _refuse_unlike(tensors: Mapping[str, Tensor], rows: Mapping[str, int], path: Path) -> None:
    for name, found in tensors.items():
        of, kind, beyond = LAYOUT[name]
        shape = (rows[of], *beyond)
        alike = len(found.shape) == len(shape) and all(b in (None, a) for a, b in zip(found.shape, shape, strict=True))
        if found.dtype != kind or not alike:
            wanted = " x ".join("any" if side is None else str(side) for side in shape)
            raise _strange(path, f"{name} is {tuple(found.shape)} of {found.dtype}, wanted {wanted} of {kind}")


def tensors_check(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 of names, types and shapes too: the same bytes may be other numbers."""
    check = 0
    for name in sorted(tensors):
        array = tensors[name].contiguous().numpy()
        check = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), check)
        check = zlib.crc32(array.reshape(-1).view(np.uint8).data, check)
    return check


def index_check(index: Mapping[str, Any]) -> int:
    checked = {name: value for name, value in index.items() if name != "check"}
    return zlib.crc32(json.dumps(checked, sort_keys=True).encode())


def _strange(path: Path, what: str) -> DataError:
    return DataError(f"{path} is no shard that Diptych writes: {what}; delete {path.parent} and extract again")
