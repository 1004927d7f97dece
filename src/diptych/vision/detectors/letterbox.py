"""Resize and pad images of any aspect ratio to squares, so that they can be stacked into a batch."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from diptych.vision.detectors.detector import Picture

GREY = 114  # pixel value of the padding


def letterbox(
    pictures: Sequence[Picture], side: int, device: torch.device | str = "cpu"
) -> tuple[UInt8[Tensor, "B 3 side side"], Float[Tensor, "B 2"]]:
    """Resize images to fit into squares of `side` pixels, with the same aspect ratio, and place them at the top left.

    Return the squares, and the share (x, y) of its square that each image covers. A position in the image (0 to 1)
    times this share is the position in the square.
    """
    stacked = torch.full((len(pictures), 3, side, side), GREY, dtype=torch.uint8, device=device)
    shares = torch.empty(len(pictures), 2)
    for square, share, picture in zip(stacked, shares, pictures, strict=True):
        fitted = fit(picture.to(device), side)
        height, width = fitted.shape[1:]
        square[:, :height, :width] = fitted
        share[0], share[1] = width / side, height / side
    return stacked, shares.to(device)


def fit(picture: Picture, side: int) -> Picture:
    """Resize an image so that its longer side has `side` pixels."""
    height, width = picture.shape[1:]
    longer = max(height, width)
    if longer == side:
        return picture
    size = max(1, round(height * side / longer)), max(1, round(width * side / longer))
    small = interpolate(picture[None].float(), size, mode="bilinear", antialias=True)[0]
    return small.round().clamp(0, 255).to(torch.uint8)


def to_square(boxes: Float[Tensor, "... 4"], share: Float[Tensor, "2"]) -> Float[Tensor, "... 4"]:
    """Convert boxes from fractions of the image to fractions of the square."""
    return boxes * share.repeat(2)


def to_picture_fractions(boxes: Float[Tensor, "... 4"], share: Float[Tensor, "2"]) -> Float[Tensor, "... 4"]:
    """Convert boxes from fractions of the square to fractions of the image, clipped to 0 to 1."""
    return (boxes / share.repeat(2)).clamp(0, 1)
