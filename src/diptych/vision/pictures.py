"""Read images from files, bytes or PIL images as tensors. `diptych.vision.image_files` decodes them."""

from pathlib import Path

import torch
from PIL import Image

from diptych.vision.detectors.detector import Picture
from diptych.vision.image_files import open_pixels, read_pixels
from diptych.vision.upright import MOST_PIXELS, Pixels, to_pixels


def open_picture(path: Path) -> Picture:
    """Read an image file like `open_pixels`, as uint8 (3, H, W). Raises DataError."""
    return as_picture(open_pixels(path))


def read_picture(file: bytes, name: str, most_pixels: int = MOST_PIXELS) -> Picture:
    """Read an image from bytes; `name` is used in errors. Raises DataError, UnknownFormat or TooManyPixels."""
    return as_picture(read_pixels(file, name, most_pixels))


def to_picture(image: Image.Image) -> Picture:
    """Convert a PIL image to an RGB tensor, uint8 (3, H, W)."""
    return as_picture(to_pixels(image))


def as_picture(pixels: Pixels) -> Picture:
    """Return pixels (H, W, 3) as a tensor (3, H, W)."""
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
