"""Batches of images with annotated objects, and the base class of training steps, for training detectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from diptych.core import Capability, Objective, Partners, Sample


@dataclass(frozen=True)
class DetectionBatch:
    """Square images and their objects.

    Rows of objects are padded to the largest number per image. IGNORE marks padding and unknown values.
    """

    keys: list[str]
    squares: UInt8[Tensor, "B 3 side side"]
    boxes: Float[Tensor, "B N 4"]  # corners x1 y1 x2 y2 as fractions of the square's side
    kinds: Int[Tensor, "B N"]
    attributes: dict[str, Int[Tensor, "B N"]]
    scene: dict[str, Int[Tensor, "B"]]

    def __len__(self) -> int:
        return len(self.keys)

    def to(self, device: torch.device | str) -> DetectionBatch:
        """Return the batch with all tensors on `device`."""

        def moved(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: tensor.to(device) for name, tensor in value.items()}
            return value.to(device) if isinstance(value, Tensor) else value

        return replace(self, **{name: moved(value) for name, value in vars(self).items()})


@dataclass(frozen=True)
class DetectionUpdate:
    """Base class of the training step of a detector.

    All steps use the same update, so `at` returns this object for each step.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    objectives: Sequence[Objective] = ()  # detectors have no language objectives
    needs: ClassVar[frozenset[Capability]] = frozenset()

    def at(self, step: int) -> Any:
        return self

    def prepare(self, samples: list[Sample], rng: Random, partners: Partners | None = None) -> list[Sample]:
        return samples
