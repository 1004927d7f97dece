"""A safetensors file from pieces as they lie in memory: `safetensors` wants each tensor whole, and copies it twice."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

# As the format calls them, in the order in which the library lays them out.
KINDS = {torch.int64: "I64", torch.float32: "F32", torch.float16: "F16", torch.uint8: "U8", torch.bool: "BOOL"}
ALIGNED = 8  # bytes


def tensor_file(columns: Mapping[str, Sequence[Tensor]]) -> list[memoryview]:
    """The bytes of a file whose tensors are these pieces, each column's one below the other. Raises ValueError."""
    order = list(KINDS)
    names = sorted(columns, key=lambda name: (order.index(columns[name][0].dtype), name))
    header, place = {}, 0
    for name in names:
        for piece in columns[name]:
            if (piece.shape[1:], piece.dtype) != (columns[name][0].shape[1:], columns[name][0].dtype):
                wanted = f"{tuple(columns[name][0].shape[1:])} of {columns[name][0].dtype}"
                raise ValueError(
                    f"a piece of {name} has rows {tuple(piece.shape[1:])} of {piece.dtype}, wanted {wanted}"
                )
        first, end = columns[name][0], place + sum(piece.nbytes for piece in columns[name])
        rows = sum(map(len, columns[name]))
        header[name] = {"dtype": KINDS[first.dtype], "shape": [rows, *first.shape[1:]], "data_offsets": [place, end]}
        place = end
    told = json.dumps(header, separators=(",", ":")).encode()
    told += b" " * (-len(told) % ALIGNED)
    pieces = [memoryview(len(told).to_bytes(8, "little") + told)]
    pieces += [piece.contiguous().numpy().reshape(-1).view(np.uint8).data for name in names for piece in columns[name]]
    return pieces
