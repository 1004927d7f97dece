"""What a detector is trained on: images and the objects in them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor


@dataclass(frozen=True)
class DetectionBatch:
    """Squares and the objects in them, padded to the most of a picture; IGNORE stands for padding and the unknown."""

    keys: list[str]
    squares: UInt8[Tensor, "B 3 side side"]
    boxes: Float[Tensor, "B N 4"]  # fractions of the square
    kinds: Int[Tensor, "B N"]
    attributes: dict[str, Int[Tensor, "B N"]]
    scene: dict[str, Int[Tensor, "B"]]

    def __len__(self) -> int:
        return len(self.keys)

    def to(self, device: torch.device | str) -> DetectionBatch:
        moved: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                moved[f.name] = value.to(device)
            elif isinstance(value, dict):
                moved[f.name] = {name: tensor.to(device) for name, tensor in value.items()}
        return replace(self, **moved)
