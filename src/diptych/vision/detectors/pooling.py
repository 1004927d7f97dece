"""RoIAlign as two matrix products, along y and along x. It is exact. In bfloat16, both passes are fast."""

import torch
from jaxtyping import Float
from torch import Tensor

SAMPLES = 2  # sampling points per cell and axis (torchvision's sampling_ratio)


def pool_regions(
    maps: Float[Tensor, "B C h w"], boxes: Float[Tensor, "B K 4"], cells: int
) -> Float[Tensor, "B K C cells cells"]:
    """Pool each box into `cells` x `cells` cells. A cell is a mean of bilinear samples (as in
    `roi_align(aligned=True)`).

    Boxes are fractions of the map. A bilinear weight is the product of a weight for the row and a weight for the
    column. So is a weight of the mean over a cell's samples. So rows are pooled first, then columns.
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
    """Return the weight of each row (or column) of the map in each cell between `low` and `high`.

    The weights of a cell sum to 1. `length`: the number of rows (or columns) of the map.
    """
    steps = (torch.arange(cells * SAMPLES, dtype=low.dtype, device=low.device) + 0.5) / (cells * SAMPLES)
    places = (low[..., None] + steps * (high - low)[..., None]) * length - 0.5
    nearness = 1 - (places.clamp(0, length - 1)[..., None] - torch.arange(length, device=low.device)).abs()
    return nearness.clamp(min=0).view(*low.shape, cells, SAMPLES, length).mean(3)
