"""Momentum encoders: copies of a module whose weights follow its own (He et al., arXiv 1911.05722; ALBEF)."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn


class Momentum(nn.Module):
    """A copy of a module, without gradients, whose weights are a running mean of the module's.

    The model makes it once its weights are initialised, and calls `follow` in its `after_step`. The copy is part of the
    model's weights, so that checkpoints hold it. The first `follow` takes the weights over as they are.
    """

    steps: torch.Tensor

    def __init__(self, module: nn.Module, momentum: float = 0.995) -> None:
        super().__init__()
        self.copy, self.momentum = deepcopy(module).requires_grad_(False), momentum
        self.followed = (module,)  # held and not registered, so that its weights are stored once
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, *given: Any, **named: Any) -> Any:
        with torch.no_grad():
            return self.copy(*given, **named)

    @torch.no_grad()
    def follow(self) -> None:
        """Move the weights towards the module's by 1 - momentum; buffers become the module's."""
        share = torch.where(self.steps == 0, 1.0, 1 - self.momentum)
        (module,) = self.followed
        for mine, theirs in zip(self.copy.parameters(), module.parameters(), strict=True):
            mine.lerp_(theirs, share.to(mine))
        for own, other in zip(self.copy.buffers(), module.buffers(), strict=True):
            own.copy_(other)
        self.steps += 1
