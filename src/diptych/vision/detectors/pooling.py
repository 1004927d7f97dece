"""RoIAlign as two matrix products, one down and one across: exact, and quick in bfloat16 both forward and back."""

import torch
from jaxtyping import Float
from torch import Tensor

SAMPLES = 2  # of a cell, both ways; as in torchvision's sampling_ratio


def pool_regions(
    maps: Float[Tensor, "B C h w"], boxes: Float[Tensor, "B K 4"], cells: int
) -> Float[Tensor, "B K C cells cells"]:
    """The mean of each cell of each box (fractions of the map), bilinear, as torchvision's `roi_align(aligned=True)`.

    Bilinear weights are a product of one for the row and one for the column, so the mean over a cell's samples is too.
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
    """How much each row (or column) of the map adds to each cell between these two fractions; a cell's sum to 1."""
    steps = (torch.arange(cells * SAMPLES, dtype=low.dtype, device=low.device) + 0.5) / (cells * SAMPLES)
    places = (low[..., None] + steps * (high - low)[..., None]) * length - 0.5
    nearness = 1 - (places.clamp(0, length - 1)[..., None] - torch.arange(length, device=low.device)).abs()
    shares: Tensor = nearness.clamp(min=0).view(*low.shape, cells, SAMPLES, length).mean(3)
    return shares
