"""Gather vectors from all processes, for objectives that compare all samples of a batch."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, distributed
from torch.nn import functional as F

_own_group: list[tuple[Any, Any]] = []  # (the run's process group, this module's group of the same processes)


def of_all_ranks(own: Float[Tensor, "n S"]) -> tuple[Float[Tensor, "N S"], slice]:
    """Gather the rows of all processes, in rank order.

    Return all rows, and the slice of this process's rows. Gradients flow to the rows of each process.

    With a single process, or without gradients (in validation), only this process's rows are returned. Every process
    must call this function.
    """
    if not (distributed.is_available() and distributed.is_initialized() and torch.is_grad_enabled()):
        return own, slice(0, len(own))
    world, rank = distributed.get_world_size(), distributed.get_rank()
    # `sizes` is on the CPU, so that reading its values does not wait for a GPU.
    group, sizes = _group(), torch.zeros(world, dtype=torch.long)
    sizes[rank] = len(own)
    distributed.all_reduce(sizes, group=group)
    counts = sizes.tolist()
    start = sum(counts[:rank])
    padded = F.pad(own, (0, 0, start, sum(counts) - start - len(own)))
    everyone: Tensor = _Sum.apply(padded, group)
    return everyone, slice(start, start + len(own))


class _Sum(torch.autograd.Function):
    """Sum a tensor over processes. The backward pass sums the gradients over processes."""

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
    """Return a process group that only this module uses.

    DDP also communicates during the backward pass. In a shared group, the two could block each other.
    """
    world = distributed.group.WORLD
    if not _own_group or _own_group[0][0] is not world:
        _own_group[:] = [(world, distributed.new_group())]
    return _own_group[0][1]
