"""Helpers for tensors that FSDP may shard over processes."""

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Return True for a DTensor. A method is looked up instead of the class, whose import takes two seconds."""
    return hasattr(tensor, "full_tensor")


def plain(tensor: Tensor) -> Tensor:
    """Return the complete tensor if `tensor` is sharded, else `tensor`. Every process must call it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def place(value: Tensor, like: Tensor, *, everywhere: bool = False) -> Tensor:
    """Move a complete tensor to the device of `like`, and shard it if `like` is sharded.

    `everywhere`: True if all processes have the tensor, so that rank 0 need not send it.
    """
    value = value.to(like.device)
    if not is_sharded(like):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None if everywhere else 0)
