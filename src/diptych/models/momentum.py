"""Momentum encoders: copies of a module with averaged weights (MoCo, He et al., arXiv 1911.05722; ALBEF)."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn


class Momentum(nn.Module):
    """A copy of a module without gradients. Its weights are an exponential moving average of the module's.

    Create it after the module's weights are initialised, and call `follow` in the model's `after_step`. The first call
    of `follow` copies the weights. The copy belongs to the model's weights, so checkpoints contain it.
    """

    steps: torch.Tensor

    def __init__(self, module: nn.Module, momentum: float = 0.995) -> None:
        super().__init__()
        self.copy, self.momentum = deepcopy(module).requires_grad_(False), momentum
        self.followed = (module,)  # in a tuple, because torch would register and store a bare module twice
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, *given: Any, **named: Any) -> Any:
        with torch.no_grad():
            return self.copy(*given, **named)

    @torch.no_grad()
    def follow(self) -> None:
        """Move the copy's weights towards the module's weights by the factor 1 - momentum. Buffers are copied."""
        share = torch.where(self.steps == 0, 1.0, 1 - self.momentum)
        (module,) = self.followed
        for mine, theirs in zip(self.copy.parameters(), module.parameters(), strict=True):
            mine.lerp_(theirs, share.to(mine))
        for own, other in zip(self.copy.buffers(), module.buffers(), strict=True):
            own.copy_(other)
        self.steps += 1
