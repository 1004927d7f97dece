"""Tensors that FSDP shards over processes."""

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """True for a DTensor, detected by its method: importing the class takes two seconds, needless for one process."""
    return hasattr(tensor, "full_tensor")


def plain(tensor: Tensor) -> Tensor:
    """The whole of a tensor that may be sharded. Every process must call it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def place(value: Tensor, like: Tensor, *, everywhere: bool = False) -> Tensor:
    """Shard a whole tensor like `like`, on its device.

    `everywhere`: all processes have the tensor, so it is not sent.
    """
    value = value.to(like.device)
    if not is_sharded(like):
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None if everywhere else 0)
