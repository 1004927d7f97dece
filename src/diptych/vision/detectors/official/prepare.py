"""Prepare images as inputs of the official detectors: BGR, values 0 to 255, mean subtracted, resized."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate, pad

from diptych.runtime.errors import DataError
from diptych.vision.detectors.detector import Picture

NARROWEST = 3  # minimum side of a resized image in pixels, which the stem reduces to one cell
MEAN = (102.9801, 115.9465, 122.7717)  # ImageNet's mean: blue, green, red


@dataclass(frozen=True)
class Prepared:
    """An image as input of the network: resized, normalised, perhaps padded."""

    image: Float[Tensor, "3 h w"]
    scale: tuple[float, float]  # pixels of `image` per pixel of the original, in x and y
    picture: tuple[int, int]  # width and height of the original in pixels

    @property
    def size(self) -> tuple[int, int]:
        """Return height and width of `image` in pixels."""
        return self.image.shape[1], self.image.shape[2]


def by_factor(picture: Picture, shorter: int, longer: int, multiple: int = 1) -> Prepared:
    """Prepare an image as Caffe and Detectron do.

    Its shorter side becomes `shorter` pixels, unless the longer side would then exceed `longer`.

    The image is resized as in OpenCV, which computes source positions from the exact factor; torch uses the rounded
    sizes. The mean is subtracted before resizing. Zeros are added on the right and below until both sides are multiples
    of `multiple`; `size` includes them. Raises DataError if a side would have fewer than NARROWEST pixels.
    """
    height, width = picture.shape[1:]
    factor = shorter / min(height, width)
    if round(factor * max(height, width)) > longer:
        factor = longer / max(height, width)
    image = _less_mean(picture)
    image = _sampled(_sampled(image, 2, factor), 1, factor)
    below, right = (-side % multiple for side in image.shape[1:])
    _check_sides(image.shape[1] + below, image.shape[2] + right, picture)
    return Prepared(pad(image, (0, right, 0, below)), (factor, factor), (width, height))


def by_size(picture: Picture, shorter: int, longer: int) -> Prepared:
    """Prepare an image as Hugging Face's `ResizeShortestEdge` does: torch's resizing, without antialiasing.

    `shorter` and `longer` are as in `by_factor`. Raises DataError if a side would have fewer than NARROWEST pixels.
    """
    height, width = picture.shape[1:]
    factor = shorter / min(height, width)
    sides = [shorter, factor * width] if height < width else [factor * height, shorter]
    if max(sides) > longer:
        factor = longer / max(sides)
        sides = [side * factor for side in sides]
    rows, columns = (int(side + 0.5) for side in sides)
    _check_sides(rows, columns, picture)
    image = interpolate(picture.flip(0)[None].float(), (rows, columns), mode="bilinear", align_corners=False)[0]
    # The reference code multiplies boxes by these scales in float32.
    return Prepared(_less_mean(image, flipped=True), (columns / width, rows / height), (width, height))


def _check_sides(rows: int, columns: int, picture: Picture) -> None:
    if min(rows, columns) < NARROWEST:
        height, width = picture.shape[1:]
        raise DataError(
            f"an image of {width} x {height} pixels is too narrow: after resizing it has {columns} x {rows}, but the "
            f"detector needs at least {NARROWEST} x {NARROWEST}; cut the image into parts"
        )


def _less_mean(picture: Tensor, flipped: bool = False) -> Float[Tensor, "3 h w"]:
    image = picture.float() if flipped else picture.flip(0).float()
    return image - image.new_tensor(MEAN)[:, None, None]


def _sampled(image: Float[Tensor, "3 h w"], axis: int, factor: float) -> Float[Tensor, "3 h2 w2"]:
    """Resample bilinearly along one axis. Output position x reads input position (x + .5) / factor - .5."""
    length = image.shape[axis]
    places = (np.arange(round(length * factor)) + 0.5) / factor - 0.5
    low = np.floor(places).astype(np.int64)
    share = (places - low).astype(np.float32)
    share[(low < 0) | (low >= length - 1)] = 0
    low = low.clip(0, length - 1)
    shape = [-1 if number == axis else 1 for number in range(3)]
    nearer = torch.from_numpy(share).to(image).reshape(shape)
    before = image.index_select(axis, torch.from_numpy(low).to(image.device))
    after = image.index_select(axis, torch.from_numpy((low + 1).clip(max=length - 1)).to(image.device))
    return before * (1 - nearer) + after * nearer
