"""Tensors that FSDP keeps in slices, a part in each process."""

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """A DTensor, told by its method: importing the class takes two seconds that one process need not wait."""
    return hasattr(tensor, "full_tensor")


def plain(tensor: Tensor) -> Tensor:
    """The whole of a tensor that may be spread over processes; every process must ask."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def place(value: Tensor, like: Tensor, *, everywhere: bool = False) -> Tensor:
    """A whole tensor, sharded as `like` is. `everywhere`: each process has it, so that none need send it."""
    value = value.to(like.device)
    if not is_sharded(like):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None if everywhere else 0)
