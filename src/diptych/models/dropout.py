"""Dropout that does not stall on a CPU.

`torch.nn.Dropout` draws one Mersenne-Twister number an element there, which costs a sixth of a training step. Here one
number drawn from torch (so that `torch.manual_seed` decides everything) seeds a fast generator, and each 64 bits of
that serve four elements. The rate is rounded to 1/65536 and the scale follows the rounded rate, so the expectation is
exact.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS = 65536  # levels of 16 random bits


class Dropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        dropped: Tensor = _Drop.apply(x, keep_mask(x.shape, self.rate), STEPS / (STEPS - _level(self.rate)))
        return dropped

    def extra_repr(self) -> str:
        return str(self.rate)


def keep_mask(shape: torch.Size, rate: float) -> Tensor:
    """True with probability 1 - rate, independently."""
    seed = int(torch.randint(2**63 - 1, ()))
    count = shape.numel()
    bits = np.random.SFC64(seed).random_raw((count + 3) // 4).view(np.uint16)[:count]
    return torch.from_numpy(bits >= _level(rate)).view(shape)


def _level(rate: float) -> int:
    return min(round(rate * STEPS), STEPS - 1)


class _Drop(torch.autograd.Function):
    """x * keep * scale, remembering one byte an element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return (x * keep).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return (grads[0] * keep).mul_(ctx.scale), None, None
