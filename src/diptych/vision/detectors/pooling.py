"""RoIAlign as two matrix products, in y and in x: exact, and fast in bfloat16, forward and backward."""

import torch
from jaxtyping import Float
from torch import Tensor

SAMPLES = 2  # per cell, in x and in y; torchvision's sampling_ratio


def pool_regions(
    maps: Float[Tensor, "B C h w"], boxes: Float[Tensor, "B K 4"], cells: int
) -> Float[Tensor, "B K C cells cells"]:
    """Average the map bilinearly over each cell of each box, like torchvision's `roi_align(aligned=True)`.

    Boxes are fractions of the map. A bilinear weight is the product of a row's weight and a column's, and so is its
    mean over a cell's samples.
    """
    count, each = boxes.shape[:2]
    channels, height, width = maps.shape[1:]
    down = _shares(boxes[..., 1], boxes[..., 3], cells, height).flatten(1, 2)
    across = _shares(boxes[..., 0], boxes[..., 2], cells, width).flatten(0, 1)
    rows = down @ maps.permute(0, 2, 3, 1).reshape(count, height, width * channels)
    pooled = across[:, None] @ rows.view(count * each, cells, width, channels)
    return pooled.view(count, each, cells, cells, channels).permute(0, 1, 4, 2, 3)


def _shares(
    low: Float[Tensor, "B K"], high: Float[Tensor, "B K"], cells: int, length: int
) -> Float[Tensor, "B K cells length"]:
    """Return each row's (or column's) weight in each cell from `low` to `high`; weights of a cell sum to 1."""
    steps = (torch.arange(cells * SAMPLES, dtype=low.dtype, device=low.device) + 0.5) / (cells * SAMPLES)
    places = (low[..., None] + steps * (high - low)[..., None]) * length - 0.5
    nearness = 1 - (places.clamp(0, length - 1)[..., None] - torch.arange(length, device=low.device)).abs()
    return nearness.clamp(min=0).view(*low.shape, cells, SAMPLES, length).mean(3)
