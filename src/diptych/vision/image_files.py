"""Read image files as upright 8-bit RGB arrays; unreadable ones raise a DataError that names them.

This module does not import torch, so a decoding process (`diptych.vision.decoder`) starts in 0.1 s and stays small.
"""

import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from diptych.runtime.errors import DataError
from diptych.runtime.files import bytes_of, write_atomically
from diptych.vision.archives import beside, content

ENDINGS = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
# Pillow's names of them. Readers of other formats are never used, as some start programs.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
ORIENTATION = 0x0112  # EXIF's tag; values 5 to 8 swap width and height
TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt", b"iCCP"))  # chunks of a PNG
ORIENTING = (b"XML:com.adobe.xmp\0\0", b"Raw profile type ")  # first bytes of texts that may have an orientation
SHORT_TEXT = 1_000  # bytes: deflate unpacks them to less than 1 MB
T = TypeVar("T")
Pixels: TypeAlias = npt.NDArray[np.uint8]  # (H, W, 3)
MOST_PIXELS = 64_000_000  # 8000 x 8000: larger is a mistake or an attack, and would take 200 MB
SMALLEST_SIDE = 4
USUAL_SCANS = 16  # scans of a progressive JPEG: encoders write about 10, and each may cost as much as the whole image
TEXT_COST = 64  # a pixel written as digits (PPM's P1 to P3) costs Pillow as much as 64 others
TILE_WIDTH, TILE_LENGTH = 322, 323  # TIFF's tags
PNG = b"\x89PNG\r\n\x1a\n"  # the first bytes of one
START_OF_SCAN = b"\xff\xda"  # JPEG's marker


class UnknownFormat(DataError):
    """A file that is not an image, or has an unsupported format."""


class TooManyPixels(DataError):
    """An image of more pixels than allowed."""


def open_pixels(path: Path) -> Pixels:
    """Read an image: upright by EXIF, transparency on white, the first frame of an animation, 16 bits as 8.

    A path may lead into an archive or name two images side by side (`diptych.vision.archives`). Raises DataError for a
    file that is missing, not an image, cut short, over MOST_PIXELS, or under 4 pixels wide or high.
    """
    if (two := beside(path)) is not None:
        return _side_by_side(*(open_pixels(one) for one in two))
    return _opened(path, upright_pixels)


def read_pixels(file: bytes, name: str, most_pixels: int = MOST_PIXELS) -> Pixels:
    """Read an image from bytes; `name` is used in errors. Raises DataError, UnknownFormat or TooManyPixels."""
    return _read(lambda: BytesIO(file), name, upright_pixels, most_pixels)


def count_frames(file: bytes, name: str) -> int:
    """Return the number of frames of an image: 1 unless it is an animation. Raises DataError."""
    return _read(lambda: BytesIO(file), name, lambda image: int(getattr(image, "n_frames", 1)), MOST_PIXELS)


def read_header(file: bytes, name: str) -> tuple[str, int, int]:
    """Return Pillow's name of the format, and the width and height of the upright image. Raises DataError."""
    return _read(lambda: BytesIO(file), name, lambda image: (image.format or "", *_upright(image)), None)


def picture_size(path: Path) -> tuple[int, int]:
    """Return width and height of the upright image in pixels; only its header is read. Raises DataError."""
    if (two := beside(path)) is not None:
        (width, height), right = (picture_size(one) for one in two)
        return width + _width_at(height, right), height
    return _opened(path, _upright)


def _side_by_side(left: Pixels, right: Pixels) -> Pixels:
    """Join two images; the right one is resized to the height of the left."""
    height = left.shape[0]
    size = (_width_at(height, (right.shape[1], right.shape[0])), height)
    resized = Image.fromarray(right).resize(size, Image.Resampling.BICUBIC)
    return np.concatenate([left, np.array(resized)], 1)


def _width_at(height: int, size: tuple[int, int]) -> int:
    return max(1, round(size[0] * height / size[1]))


def upright_pixels(image: Image.Image) -> Pixels:
    """Convert an open image to RGB, with EXIF's orientation applied."""
    return to_pixels(ImageOps.exif_transpose(image))


def as_jpeg(pixels: Pixels, side: int, quality: int = 75) -> bytes:
    """Return an image as a JPEG of at most `side` pixels in width and height."""
    image, content = Image.fromarray(pixels), BytesIO()
    image.thumbnail((side, side))
    image.save(content, "JPEG", quality=quality)
    return content.getvalue()


def _upright(image: Image.Image) -> tuple[int, int]:
    if image.width * image.height > MOST_PIXELS:  # a PNG is decoded for its EXIF, which may follow the pixels
        return image.size
    turned = image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
    applied = getattr(image, "tag_v2", {}).get(ORIENTATION, 1) in (5, 6, 7, 8)  # Pillow opens a TIFF by it, not by XMP
    return (image.height, image.width) if turned and not applied else image.size


def _opened(path: Path, take: Callable[[Image.Image], T]) -> T:
    if path.is_fifo() or path.is_char_device() or path.is_socket():  # reading it might never end
        raise DataError(f"{path} is a pipe, a device or a socket, not an image file; save its output to a file first")
    return _read(lambda: content(path), path, take, MOST_PIXELS)


def _read(
    file: Callable[[], Path | BytesIO], path: Path | str, take: Callable[[Image.Image], T], most_pixels: int | None
) -> T:
    try:
        try:
            return _taken(file(), path, take, most_pixels)
        except (DataError, FileNotFoundError, PermissionError, Image.DecompressionBombError):
            raise
        except Exception:  # a PNG's text or profile may be damaged or over Pillow's limit, and is not needed
            if (plain := _without_texts(file())) is None:
                raise
            return _taken(plain, path, take, most_pixels)
    except FileNotFoundError as error:
        raise DataError(f"no image at {path}; check the name, and the folder of relative names") from error
    except UnidentifiedImageError as error:
        raise UnknownFormat(f"{path} is not an image by its content; expected one of {', '.join(ENDINGS)}") from error
    except Image.DecompressionBombError as error:
        raise TooManyPixels(f"{path} has more than {most_pixels:,} pixels; make it smaller first") from error
    except DataError:
        raise
    except Exception as error:  # Pillow's readers raise many types on damaged files
        raise DataError(
            f"cannot read the image {path}: {str(error) or type(error).__name__}; it may be cut short: copy it again"
        ) from error


def _taken(file: Path | BytesIO, path: Path | str, take: Callable[[Image.Image], T], most_pixels: int | None) -> T:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns from half its limit on; ours is checked below
        with Image.open(file, formats=FORMATS) as image:
            if image.format == "MPO":  # a camera's file: a JPEG, followed by more views of the same moment
                vars(image).update(format="JPEG", n_frames=1)
            if most_pixels is not None:
                _check_size(path, *image.size, most_pixels)
                _check_cost(path, image, most_pixels)
            return take(image)


def _without_texts(file: Path | BytesIO) -> BytesIO | None:
    """Return a PNG without its texts and colour profile; EXIF and XMP stay. None if there is nothing to remove."""
    png = memoryview(bytes_of(file) if isinstance(file, Path) else file.read())
    kept, at = [png[:8]], 8
    if kept[0] != PNG:
        return None
    while at < len(png):
        end = at + 12 + int.from_bytes(png[at : at + 4])
        name, text = bytes(png[at + 4 : at + 8]), bytes(png[at + 8 : min(end, at + 60)])
        most = SHORT_TEXT * (1 if name == b"zTXt" else 100)
        if name not in TEXTS or (text.startswith(ORIENTING) and end - at < most):
            kept.append(png[at:end])
        at = end
    return BytesIO(b"".join(kept)) if sum(map(len, kept)) < len(png) else None


def to_pixels(image: Image.Image) -> Pixels:
    """Convert to RGB."""
    if image.mode.startswith("I;16") or image.mode in {"I", "F"}:
        image = _to_eight_bits(image)
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image.convert("RGB"))


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit integers (whole range), 32-bit integers or floats (0 to 1, or to the largest value) to 8 bits."""
    values = np.asarray(image, dtype=np.float64)
    # Modes "I" and "F" do not define white, so the brightest pixel decides.
    most = values.max(initial=0, where=np.isfinite(values))
    sixteen = image.mode.startswith("I;16") or most > 255
    top = max(65535.0, most) if sixteen else 1.0 if image.mode == "F" and most <= 1 else 255.0
    return Image.fromarray((np.nan_to_num(values).clip(0, top) / top * 255).round().astype(np.uint8))


def _check_size(path: Path | str, width: int, height: int, most_pixels: int) -> None:
    if width * height > most_pixels:
        raise TooManyPixels(f"{path} is {width} x {height}, more than {most_pixels:,} pixels; make it smaller first")
    if min(width, height) < SMALLEST_SIDE:
        raise DataError(f"{path} is {width} x {height} pixels; expected at least {SMALLEST_SIDE} on each side")


def _check_cost(path: Path | str, image: ImageFile.ImageFile, most_pixels: int) -> None:
    """Refuse files that cost more to decode than MOST_PIXELS ordinary pixels, by their headers.

    A JPEG of 350 kB may have thousands of scans of the whole image, and a TIFF of 16 x 16 pixels one tile of 400 MB.
    """
    width, height = image.size
    cost, why = width * height, ""
    if image.format == "JPEG" and "progressive" in image.info:
        scans = _count_scans(image)
        cost, why = cost * scans // USUAL_SCANS, f"{scans} scans"
    elif image.format == "TIFF" and TILE_WIDTH in (tags := getattr(image, "tag_v2", {})):
        across, down = int(tags[TILE_WIDTH]), int(tags.get(TILE_LENGTH, 0))
        cost = -(-width // max(1, across)) * -(-height // max(1, down)) * across * down
        why = f"tiles of {across} x {down}"
    elif image.format == "PPM" and image.tile and image.tile[0][0] == "ppm_plain":
        cost, why = cost * TEXT_COST, "pixels as text"
    if why and cost > most_pixels:
        raise TooManyPixels(
            f"{path} is {width} x {height} with {why}, as costly to read as over {most_pixels:,} pixels; "
            "save it again with another program"
        )


def _count_scans(image: ImageFile.ImageFile) -> int:
    file = cast(BinaryIO, image.fp)
    place = file.tell()
    file.seek(0)
    scans = file.read().count(START_OF_SCAN)
    file.seek(place)
    return scans


def write_png(image: Image.Image, path: Path) -> None:
    """Write a PNG atomically. Raises DiptychError."""
    png = BytesIO()
    image.save(png, "PNG")
    write_atomically(path, png.getvalue())


def is_named_image(name: str) -> bool:
    """Return True for the name of an image file. `._a.jpg` is none: it has macOS's metadata of a.jpg."""
    return name.lower().endswith(ENDINGS) and not name.rpartition("/")[2].startswith("._")


def find_pictures(folder: Path) -> list[Path]:
    """Return all image files below a folder, sorted by path."""
    return sorted(p for p in folder.rglob("*") if is_named_image(p.name) and p.is_file())
