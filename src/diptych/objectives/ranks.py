"""What an objective that compares the samples of a batch needs of the other processes' batches."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, distributed
from torch.nn import functional as F

_own_group: list[tuple[Any, Any]] = []  # the process group of a run, and ours over the same processes


def of_all_ranks(own: Float[Tensor, "n S"]) -> tuple[Float[Tensor, "N S"], slice]:
    """The rows of all processes, in the order of ranks, and which are this one's. Gradients go back to their owners.

    Alone, and where no gradient is wanted (validation, when each process may have the same batch), the rows are
    this process's alone. Every process has to call it.
    """
    if not (distributed.is_available() and distributed.is_initialized() and torch.is_grad_enabled()):
        return own, slice(0, len(own))
    world, rank = distributed.get_world_size(), distributed.get_rank()
    group, sizes = _group(), torch.zeros(world, dtype=torch.long)  # on the CPU: its numbers are wanted here
    sizes[rank] = len(own)
    distributed.all_reduce(sizes, group=group)
    counts = sizes.tolist()
    start = sum(counts[:rank])
    padded = F.pad(own, (0, 0, start, sum(counts) - start - len(own)))
    everyone: Tensor = _Sum.apply(padded, group)
    return everyone, slice(start, start + len(own))


class _Sum(torch.autograd.Function):
    """The sum over processes, whose gradient is the sum of their gradients."""

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
    """A group of our own: DDP sends gradients while backward still runs, and the two must not wait for each other."""
    world = distributed.group.WORLD
    if not _own_group or _own_group[0][0] is not world:
        _own_group[:] = [(world, distributed.new_group())]
    return _own_group[0][1]
