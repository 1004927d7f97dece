"""Write a safetensors file from pieces of tensors.

The `safetensors` library would need whole tensors, and would copy each of them twice.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

# {torch type: name of the type in the file}, in the order in which `safetensors` sorts tensors.
KINDS = {torch.int64: "I64", torch.float32: "F32", torch.float16: "F16", torch.uint8: "U8", torch.bool: "BOOL"}
ALIGNED = 8  # tensors begin at multiples of this many bytes


def tensor_file(columns: Mapping[str, Sequence[Tensor]]) -> list[memoryview]:
    """Return the bytes of a safetensors file, as pieces to be written one after the other.

    The pieces of a column (one tensor of the file) are concatenated along the first dimension. Raises ValueError if the
    pieces of a column differ in type or in the shape of a row.
    """
    order = list(KINDS)
    names = sorted(columns, key=lambda name: (order.index(columns[name][0].dtype), name))
    header, offset = {}, 0
    for name in names:
        first, pieces = columns[name][0], columns[name]
        for piece in pieces:
            if (piece.shape[1:], piece.dtype) != (first.shape[1:], first.dtype):
                given, wanted = (f"{one.dtype} with rows {tuple(one.shape[1:])}" for one in (piece, first))
                raise ValueError(f"a piece of `{name}` is {given}, expected {wanted}")
        end, rows = offset + sum(piece.nbytes for piece in pieces), sum(map(len, pieces))
        header[name] = {"dtype": KINDS[first.dtype], "shape": [rows, *first.shape[1:]], "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % ALIGNED)
    tensors = [piece.contiguous().numpy().reshape(-1) for name in names for piece in columns[name]]
    return [memoryview(len(head).to_bytes(8, "little") + head), *(one.view(np.uint8).data for one in tensors)]
