"""Read image files as upright 8-bit RGB; unreadable ones raise a DataError that names them."""

import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from diptych.runtime.errors import DataError
from diptych.runtime.files import write_atomically
from diptych.vision.archives import beside, content
from diptych.vision.detectors.detector import Picture

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
# Pillow's names of them. Readers of other formats are never used, as some start programs.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
ORIENTATION = 0x0112  # EXIF's tag; values 5 to 8 swap width and height
T = TypeVar("T")
MOST_PIXELS = 64_000_000  # 8000 x 8000: larger is a mistake or an attack, and would take 200 MB
SMALLEST_SIDE = 4


class UnknownFormat(DataError):
    """A file that is no image, or has an unsupported format."""


class TooManyPixels(DataError):
    """An image of more pixels than allowed."""


def open_picture(path: Path) -> Picture:
    """Read an image: EXIF's orientation applied, transparency on white, first frame of an animation, 16 bits as 8.

    A path may lead into an archive or name two images side by side (`diptych.vision.archives`). Raises DataError for a
    file that is missing, no image, cut short, over MOST_PIXELS, or under 4 pixels wide or high.
    """
    if (two := beside(path)) is not None:
        return _side_by_side(*(open_picture(one) for one in two))
    return _opened(path, _upright_picture)


def read_picture(file: bytes, name: str, most_pixels: int = MOST_PIXELS) -> Picture:
    """Read an image from bytes; `name` is used in errors. Raises DataError, UnknownFormat or TooManyPixels."""
    return _read(lambda: BytesIO(file), name, _upright_picture, most_pixels)


def picture_size(path: Path) -> tuple[int, int]:
    """Return width and height of the upright image in pixels; only its header is read. Raises DataError."""
    if (two := beside(path)) is not None:
        (width, height), right = (picture_size(one) for one in two)
        return width + _width_at(height, right), height
    return _opened(path, _upright)


def _side_by_side(left: Picture, right: Picture) -> Picture:
    """Join two images; the right one is resized to the height of the left."""
    height = left.shape[1]
    size = (_width_at(height, (right.shape[2], right.shape[1])), height)
    resized = Image.fromarray(right.permute(1, 2, 0).numpy()).resize(size, Image.Resampling.BICUBIC)
    return torch.cat([left, torch.from_numpy(np.array(resized)).permute(2, 0, 1)], 2)


def _width_at(height: int, size: tuple[int, int]) -> int:
    return max(1, round(size[0] * height / size[1]))


def _upright_picture(image: Image.Image) -> Picture:
    return to_picture(ImageOps.exif_transpose(image))


def _upright(image: Image.Image) -> tuple[int, int]:
    swapped = image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
    return (image.height, image.width) if swapped else image.size


def _opened(path: Path, take: Callable[[Image.Image], T]) -> T:
    if path.is_fifo() or path.is_char_device() or path.is_socket():  # reading it might never end
        raise DataError(f"{path} is a pipe, a device or a socket, not an image file; save its output to a file first")
    return _read(lambda: content(path), path, take, MOST_PIXELS)


def _read(
    file: Callable[[], Path | BinaryIO], path: Path | str, take: Callable[[Image.Image], T], most_pixels: int
) -> T:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns from half its limit on; ours is checked below
            with Image.open(file(), formats=FORMATS) as image:
                _check_size(path, *image.size, most_pixels)
                return take(image)
    except FileNotFoundError as error:
        raise DataError(f"no picture at {path}; check the name, and the folder of relative names") from error
    except UnidentifiedImageError as error:
        raise UnknownFormat(f"{path} is not a picture; wanted one of {', '.join(ENDINGS)}") from error
    except Image.DecompressionBombError as error:
        raise TooManyPixels(f"{path} has more than {most_pixels:,} pixels; make it smaller first") from error
    except DataError:
        raise
    except Exception as error:  # Pillow's readers raise many types on damaged files
        raise DataError(
            f"cannot read the picture {path}: {str(error) or type(error).__name__}; it may be cut short: copy it again"
        ) from error


def to_picture(image: Image.Image) -> Picture:
    """Convert to RGB, uint8 (3, H, W)."""
    if image.mode.startswith("I;16") or image.mode in {"I", "F"}:
        image = _to_eight_bits(image)
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit integers (whole range) or floats (0 to 1) to 8 bits."""
    values = np.asarray(image, dtype=np.float64)
    # Modes "I" and "F" do not define white, so the brightest pixel decides.
    most = values.max(initial=0)
    sixteen = image.mode.startswith("I;16") or most > 255
    top = 65535.0 if sixteen else 1.0 if image.mode == "F" and most <= 1 else 255.0
    return Image.fromarray((np.nan_to_num(values).clip(0, top) / top * 255).round().astype(np.uint8))


def _check_size(path: Path | str, width: int, height: int, most_pixels: int) -> None:
    if width * height > most_pixels:
        raise TooManyPixels(f"{path} is {width} x {height}, more than {most_pixels:,} pixels; make it smaller first")
    if min(width, height) < SMALLEST_SIDE:
        raise DataError(f"{path} is {width} x {height} pixels; wanted at least {SMALLEST_SIDE} on each side")


def write_png(image: Image.Image, path: Path) -> None:
    """Write a PNG atomically. Raises DiptychError."""
    png = BytesIO()
    image.save(png, "PNG")
    write_atomically(path, png.getvalue())


def find_pictures(folder: Path) -> list[Path]:
    """Return all image files below a folder, sorted by path."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
