"""Decode an image file to upright 8-bit RGB pixels, within limits of size and cost.

`diptych export` copies this module into run.py, where DataError is a ValueError.
"""

import warnings
from collections.abc import Callable, Mapping
from io import BufferedReader, BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from diptych.runtime.errors import DataError

ENDINGS = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
# Pillow's names of the accepted formats. Pillow's readers of other formats are not used, because some start programs.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt", b"iCCP"))  # PNG chunks with text or a colour profile
ORIENTING = (b"XML:com.adobe.xmp\0\0", b"Raw profile type ")  # first bytes of texts that may state the orientation
SHORT_TEXT = 1_000  # a compressed text of fewer bytes unpacks to less than 1 MB
T = TypeVar("T")
Pixels: TypeAlias = npt.NDArray[np.uint8]  # (H, W, 3)
MOST_PIXELS = 64_000_000  # 8000 x 8000 pixels take 200 MB; a larger image is probably a mistake or an attack
SMALLEST_SIDE = 4
USUAL_SCANS = 16  # a JPEG with N times as many scans costs as much as N images; encoders write about 10
TEXT_COST = 64  # reading a pixel written as digits (PPM's P1 to P3) takes as long as reading 64 binary pixels
TILE_WIDTH, TILE_LENGTH, SAMPLE_BITS, SAMPLE_FORMAT, WHITE = 322, 323, 258, 339, 262  # tags of a TIFF
# Pillow's name of a PNG's pixel format -> (factor, number of bits to drop), to convert its values to 8 bits
KEYS = {"L;2": (85, 0), "L;4": (17, 0), "RGB;16B": (1, 8)}
PNG = b"\x89PNG\r\n\x1a\n"  # first bytes of a PNG
START_OF_SCAN = b"\xff\xda"  # marker of a scan in a JPEG file


class UnknownFormat(DataError):
    """Raised for a file that is not an image, or has an unsupported format."""


class TooManyPixels(DataError):
    """Raised for an image with more pixels than allowed."""


def read_image(
    file: Callable[[], BytesIO | BufferedReader],
    path: Path | str,
    take: Callable[[Image.Image], T],
    most_pixels: int | None,
) -> T:
    """Return what `take` makes of an open image. `path` is used in errors; None: no limits.

    `file` opens it again at each call. Given a path, Pillow maps the file into memory, and then damages TIFFs that it
    rotates. Raises DataError, UnknownFormat or TooManyPixels.
    """
    try:
        # Reading from a pipe or a device might never end.
        if isinstance(path, Path) and (path.is_fifo() or path.is_char_device() or path.is_socket()):
            raise DataError(f"{path} is a pipe, a device or a socket; save its output to a file first")
        try:
            return _taken(file(), path, take, most_pixels)
        except (DataError, FileNotFoundError, PermissionError, Image.DecompressionBombError):
            raise
        except Exception:  # Pillow may reject the text or colour profile of a PNG, which is not needed
            if (plain := _without_texts(file())) is None:
                raise
            return _taken(plain, path, take, most_pixels)
    except FileNotFoundError as error:
        raise DataError(f"no image at {path}; check the name, and for a relative path the current folder") from error
    except PermissionError as error:
        raise DataError(f"cannot read the image {path}: {error.strerror}; make it readable") from error
    except UnidentifiedImageError as error:
        raise UnknownFormat(f"{path} does not hold an image; pass a file of type {', '.join(ENDINGS)}") from error
    except Image.DecompressionBombError as error:
        most = most_pixels or MOST_PIXELS
        raise TooManyPixels(f"{path} has more than {most:,} pixels; make the image smaller") from error
    except DataError:
        raise
    except Exception as error:  # Pillow raises many types of exceptions for damaged files
        raise DataError(
            f"cannot read the image {path}: {str(error) or type(error).__name__}; it may be cut short: copy it again"
        ) from error


def _taken(
    file: BytesIO | BufferedReader, path: Path | str, take: Callable[[Image.Image], T], most_pixels: int | None
) -> T:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns at half its limit of pixels; our limit is checked below
        with file, Image.open(file, formats=FORMATS) as image:
            if image.format == "MPO":  # MPO: a camera's JPEG, followed by further views of the same scene
                vars(image).update(format="JPEG", n_frames=1)
            if image.format == "PNG" and image.tile and image.tile[0].args in KEYS:
                _scale_key(image, *KEYS[image.tile[0].args])
            if most_pixels is not None:
                _check_size(path, *image.size, most_pixels)
                _check_cost(path, image, most_pixels)
            return take(image)


def upright_pixels(image: Image.Image) -> Pixels:
    """Return the pixels of an open image in RGB, with EXIF's orientation applied."""
    tags = {SAMPLE_BITS: (16,)} if image.format == "PPM" else getattr(image, "tag_v2", {})
    return to_pixels(ImageOps.exif_transpose(image), tags)


def _scale_key(image: Image.Image, times: int, shift: int) -> None:
    """Scale the colour key of transparent pixels by the same factor as the pixels. Pillow leaves it as in the file."""
    key = image.info.get("transparency")
    if isinstance(key, int):
        image.info["transparency"] = key * times >> shift
    elif isinstance(key, tuple):
        image.info["transparency"] = tuple(one * times >> shift for one in key)


def _without_texts(file: BytesIO | BufferedReader) -> BytesIO | None:
    """Return a PNG without its texts and colour profile. EXIF and XMP are kept.

    Return None if there is nothing to remove.
    """
    with file:
        png = memoryview(file.read())
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


def to_pixels(image: Image.Image, tags: Mapping[int, Any] = MappingProxyType({})) -> Pixels:
    """Return the pixels of an image in RGB, uint8 (H, W, 3). `tags`: those of a TIFF."""
    if image.mode.startswith("I;16") or image.mode in {"I", "F"}:
        image = _to_eight_bits(image, tags)
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.array(image.convert("RGB"))


def _to_eight_bits(image: Image.Image, tags: Mapping[int, Any]) -> Image.Image:
    """Scale an image to 8 bits.

    If the image has 16 bits or values above 255, white is 65,535, or the maximum of the image if that is larger.
    Otherwise white is 1 for fractions from 0 to 1, and 255 for other values. Floats may be up to twice as large; they
    are clipped. In a TIFF of 9 to 16 bits, white is the largest number of that size. A TIFF's tags also state whether
    integers are signed, and whether white is 0.
    """
    array = np.asarray(image)
    signed = tags.get(SAMPLE_FORMAT, (1,))[0] == 2
    unsigned = image.mode == "I" and SAMPLE_BITS in tags and not signed
    values = (array.view(np.uint32) if unsigned else array).astype(np.float64)
    # Pillow's modes "I" and "F" do not define white, so the brightest pixel is white.
    most = values.max(initial=0, where=np.isfinite(values))
    floats = image.mode == "F"  # resampling may have raised some values above white
    sixteen = image.mode.startswith("I;16") or most > (2 * 255 if floats else 255)
    top = max(65535.0, most) if sixteen else 1.0 if floats and most <= 2 else 255.0
    if not floats and 8 < (bits := tags.get(SAMPLE_BITS, (8,))[0]) <= 16:
        top = 2.0 ** (bits - signed) - 1
    if isinstance(key := image.info.get("transparency"), int):  # the value of transparent pixels of a PNG
        values = np.where(values == key, top, values)
    eight = (np.nan_to_num(values).clip(0, top) / top * 255).round().astype(np.uint8)
    return Image.fromarray(255 - eight if tags.get(WHITE) == 0 else eight)


def _check_size(path: Path | str, width: int, height: int, most_pixels: int) -> None:
    if width * height > most_pixels:
        raise TooManyPixels(f"{path} is {width} x {height}, more than {most_pixels:,} pixels; make the image smaller")
    if min(width, height) < SMALLEST_SIDE:
        raise DataError(f"{path} is {width} x {height} pixels; expected {SMALLEST_SIDE} or more per side: leave it out")


def _check_cost(path: Path | str, image: ImageFile.ImageFile, most_pixels: int) -> None:
    """Raise TooManyPixels if a file's header shows that it costs more to decode than `most_pixels` ordinary pixels.

    A JPEG of 350 kB may have thousands of scans of the whole image. A TIFF of 16 x 16 pixels may have one tile of 400
    MB.
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
            f"{path} is {width} x {height} with {why}, so reading it costs as much as {most_pixels:,} pixels or more; "
            "save the image again with another program"
        )


def _count_scans(image: ImageFile.ImageFile) -> int:
    file = cast(BinaryIO, image.fp)
    place = file.tell()
    file.seek(0)
    scans = file.read().count(START_OF_SCAN)
    file.seek(place)
    return scans
