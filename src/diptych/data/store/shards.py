"""The layout of a store's shard: its entry in the index, the types and shapes of its tensors, and checksums.

A checksum detects damage, but not forgery, so types and shapes are checked as well.
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct
from torch import Tensor

from diptych.runtime.errors import DataError

TABLES = ("ends", "word_ends", "checks", "word_checks", "sizes", "splits")
PER_REGION = ("boxes", "scores", "classes", "features", "masks")
# {tensor: (rows, type, shape of a row)}. There is one row per record, region or byte. None: any size.
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
    """The entry of a shard in the index of a store."""

    name: Annotated[str, Meta(pattern=r"^shard-\d{5,9}\.safetensors\Z")]
    records: Annotated[int, Meta(ge=1, le=1_000_000)]
    check: int  # CRC-32 of the shard's tables
    splits: Annotated[list[str], Meta(min_length=1, max_length=1_000_000)]  # names; the table `splits` has their places


class ShardList(Struct):
    """The part of `store.json` that lists the shards."""

    shards: list[ShardEntry]


def check_tables(tables: Mapping[str, Tensor], entry: ShardEntry, path: Path) -> None:
    """Raise DataError for a table of a wrong type or shape, for end offsets that decrease, for an image size below 1,
    and for a split that the index does not name."""
    _check_layout({name: tables[name] for name in TABLES}, {"records": entry.records}, path)
    for name in ("ends", "word_ends"):
        if bool((tables[name].diff(prepend=tables[name].new_zeros(1)) < 0).any()):
            raise _foreign(path, f"the values of `{name}` are not in ascending order")
    if bool((tables["sizes"] < 1).any()):
        raise _foreign(path, "an image size is below 1 pixel")
    if not 0 <= int(tables["splits"].min()) <= int(tables["splits"].max()) < len(entry.splits):
        raise _foreign(path, "a split is not in the index")
    _check_layout({"words": tables["words"]}, {"bytes": int(tables["word_ends"][-1])}, path)


def check_columns(columns: Mapping[str, Tensor], regions: int, records: int, path: Path) -> None:
    """Raise DataError if a tensor with a row per region is missing, or has a wrong type or shape."""
    if missing := {"boxes", "scores"} - columns.keys():
        raise _foreign(path, f"the tensor `{missing.pop()}` is missing")
    _check_layout(columns, {"regions": regions, "records": records}, path)


def _check_layout(tensors: Mapping[str, Tensor], rows: Mapping[str, int], path: Path) -> None:
    for name, tensor in tensors.items():
        counted, kind, beyond = LAYOUT[name]
        shape = (rows[counted], *beyond)
        alike = len(tensor.shape) == len(shape) and all(
            b in (None, a) for a, b in zip(tensor.shape, shape, strict=True)
        )
        if tensor.dtype != kind or not alike:
            sizes = " x ".join("any" if side is None else str(side) for side in shape)
            raise _foreign(path, f"`{name}` is {tuple(tensor.shape)} of {tensor.dtype}, expected {sizes} of {kind}")


def tensors_check(tensors: Mapping[str, Tensor]) -> int:
    """Return the CRC-32 of tensors, including their names, types and shapes."""
    check = 0
    for name in sorted(tensors):
        array = tensors[name].contiguous().numpy()
        kind = str(tensors[name].dtype).removeprefix("torch.")  # numpy takes 8 microseconds to name a type
        check = zlib.crc32(array.data, zlib.crc32(f"{name} {kind} {array.shape}".encode(), check))
    return check


def index_check(index: Mapping[str, Any]) -> int:
    """Return the CRC-32 of `store.json`, leaving out its entry `check`, which holds this number."""
    checked = {name: value for name, value in index.items() if name != "check"}
    return zlib.crc32(json.dumps(checked, sort_keys=True).encode())


def _foreign(path: Path, what: str) -> DataError:
    return DataError(f"{path} is not a shard that Diptych writes: {what}; delete {path.parent} and extract again")
