"""Rows of all processes, for objectives that compare the samples of a batch."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, distributed
from torch.nn import functional as F

_own_group: list[tuple[Any, Any]] = []  # a run's process group, and our own over the same processes


def of_all_ranks(own: Float[Tensor, "n S"]) -> tuple[Float[Tensor, "N S"], slice]:
    """Gather the rows of all processes in rank order, and the slice of this process. Gradients go to their owners.

    With one process, or without gradients (validation, where each process may have the same batch), only this
    process's rows are returned. Every process must call it.
    """
    if not (distributed.is_available() and distributed.is_initialized() and torch.is_grad_enabled()):
        return own, slice(0, len(own))
    world, rank = distributed.get_world_size(), distributed.get_rank()
    group, sizes = _group(), torch.zeros(world, dtype=torch.long)  # on the CPU, as its numbers are read here
    sizes[rank] = len(own)
    distributed.all_reduce(sizes, group=group)
    counts = sizes.tolist()
    start = sum(counts[:rank])
    padded = F.pad(own, (0, 0, start, sum(counts) - start - len(own)))
    everyone: Tensor = _Sum.apply(padded, group)
    return everyone, slice(start, start + len(own))


class _Sum(torch.autograd.Function):
    """Sum over processes; the gradient is summed over processes too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = x.clone()
        distributed.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        total = grads[0].contiguous().clone()
        distributed.all_reduce(total, group=ctx.group)
        return total, None


def _group() -> Any:
    """A process group of our own: DDP sends gradients during backward, and the two must not wait for each other."""
    world = distributed.group.WORLD
    if not _own_group or _own_group[0][0] is not world:
        _own_group[:] = [(world, distributed.new_group())]
    return _own_group[0][1]
