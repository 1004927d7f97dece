"""Read image files as upright 8-bit RGB arrays. For an unreadable file, a DataError names the file.

This module does not import torch, so a decoding process (`diptych.vision.decoder`) starts in 0.1 s and stays small.
"""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from diptych.runtime.files import files_below, write_atomically
from diptych.vision.archives import beside, content
from diptych.vision.upright import ENDINGS, MOST_PIXELS, Pixels, T, read_image, upright_pixels

BEYOND = 0.2  # if boxes exceed the image by a larger share, they may be corners, or be for another image size
ALIKE = 0.02  # maximum relative difference of the aspect ratios of an image and of its resized version
ORIENTATION = 0x0112  # EXIF's orientation tag; values 5 to 8 swap width and height


def open_pixels(path: Path) -> Pixels:
    """Read an image file as uint8 (H, W, 3).

    EXIF's orientation is applied, transparent pixels are blended with white, and 16 bits are scaled to 8. For an
    animation, the first frame is read.

    The path may be inside an archive, or name two images side by side (`diptych.vision.archives`). Raises DataError for
    a file that is missing, not an image, truncated, over MOST_PIXELS, or under 4 pixels wide or high.
    """
    if (two := beside(path)) is not None:
        return _side_by_side(*(open_pixels(one) for one in two))
    return _opened(path, upright_pixels)


def read_pixels(file: bytes, name: str, most_pixels: int = MOST_PIXELS) -> Pixels:
    """Read an image from bytes; `name` is used in errors. Raises DataError, UnknownFormat or TooManyPixels."""
    return read_image(lambda: BytesIO(file), name, upright_pixels, most_pixels)


def count_frames(file: bytes, name: str) -> int:
    """Return the number of frames of an image. It is 1 unless the image is an animation. Raises DataError."""
    return read_image(lambda: BytesIO(file), name, lambda image: int(getattr(image, "n_frames", 1)), MOST_PIXELS)


def read_header(file: bytes, name: str) -> tuple[str, int, int]:
    """Return the name of the format, such as JPEG, and the width and height of the upright image in pixels.

    Raises DataError.
    """
    return read_image(lambda: BytesIO(file), name, lambda image: (image.format or "", *_upright(image)), None)


def picture_size(path: Path) -> tuple[int, int]:
    """Return width and height of the upright image in pixels. Only the header is read. Raises DataError."""
    if (two := beside(path)) is not None:
        (width, height), right = (picture_size(one) for one in two)
        return width + _width_at(height, right), height
    return _opened(path, _upright)


def orientation(path: Path) -> int:
    """Return EXIF's orientation, 1 for an upright image. Only the header is read. Raises DataError."""
    return 1 if beside(path) else _opened(path, lambda image: int(image.getexif().get(ORIENTATION, 1)))


def same_shape(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return True if two sizes (width, height) have nearly the same aspect ratio, like an image and its resized
    version.
    """
    ratios = one[0] * other[1], one[1] * other[0]
    return abs(ratios[0] - ratios[1]) <= ALIKE * max(ratios)


def _side_by_side(left: Pixels, right: Pixels) -> Pixels:
    """Join two images side by side. The right image is resized to the height of the left one."""
    height = left.shape[0]
    size = (_width_at(height, (right.shape[1], right.shape[0])), height)
    resized = Image.fromarray(right).resize(size, Image.Resampling.BICUBIC)
    return np.concatenate([left, np.array(resized)], 1)


def _width_at(height: int, size: tuple[int, int]) -> int:
    return max(1, round(size[0] * height / size[1]))


def as_jpeg(pixels: Pixels, side: int, quality: int = 75) -> bytes:
    """Return the bytes of a JPEG of the image, resized to at most `side` pixels in width and height."""
    image, content = Image.fromarray(pixels), BytesIO()
    image.thumbnail((side, side))
    image.save(content, "JPEG", quality=quality)
    return content.getvalue()


def _upright(image: Image.Image) -> tuple[int, int]:
    # The EXIF of larger images is not read: this would decode a whole PNG, because its EXIF may follow the pixels.
    if image.width * image.height > MOST_PIXELS:
        return image.size
    turned = image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
    # Pillow itself applies the orientation tag of a TIFF when it opens the file.
    applied = getattr(image, "tag_v2", {}).get(ORIENTATION, 1) in (5, 6, 7, 8)
    return (image.height, image.width) if turned and not applied else image.size


def _opened(path: Path, take: Callable[[Image.Image], T]) -> T:
    return read_image(lambda: content(path), path, take, MOST_PIXELS)


def write_png(image: Image.Image, path: Path) -> None:
    """Write an image as a PNG, atomically. Raises DiptychError if it cannot be written."""
    png = BytesIO()
    image.save(png, "PNG")
    write_atomically(path, png.getvalue())


def is_named_image(name: str) -> bool:
    """Return True if a file name has the ending of an image.

    Names such as `._a.jpg` are excluded: they hold macOS's metadata.
    """
    return name.lower().endswith(ENDINGS) and not name.rpartition("/")[2].startswith("._")


def find_pictures(folder: Path) -> list[Path]:
    """Return all image files below a folder, sorted by path. Raises DataError if a folder in it cannot be read."""
    return [p for p in files_below(folder) if is_named_image(p.name) and p.is_file()]
