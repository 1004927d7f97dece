"""Convert images in any form that the Python API accepts."""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from diptych.core import Record
from diptych.runtime.arguments import path_of
from diptych.runtime.errors import DataError
from diptych.vision.detectors.detector import Picture
from diptych.vision.pictures import as_picture, read_picture
from diptych.vision.upright import SMALLEST_SIDE, upright_pixels

WANTED = (
    "a path, an http(s) URL, bytes, an open file, a Pillow image, {'bytes': ..., 'path': ...}, or an array or tensor "
    "of shape (H, W, 3) or (3, H, W), uint8 or floats from 0 to 1"
)
SCHEME = re.compile(r"data:|[A-Za-z][A-Za-z0-9+.-]+://")  # a text that begins like this is a URL
MOST_BYTES = 64 * 2**20  # a fetched image may have at most this number of bytes
BATCH = 16  # images are processed in batches of this size
SECONDS = 20  # a fetch fails if its server sends nothing for this number of seconds
Readable = Path | Picture | Record  # types of an image that a `Predictor` accepts
T = TypeVar("T")


def is_one(images: object) -> bool:
    """Return True for one image, False for several: a list, an iterator, a column of a table, or an array (N, ...)."""
    if isinstance(images, np.ndarray | torch.Tensor):
        return images.ndim in (2, 3)
    single = isinstance(images, str | os.PathLike | bytes | bytearray | memoryview | Mapping | Image.Image | Record)
    opened = hasattr(images, "read") and not hasattr(images, "records")  # a `Dataset` has `read` too, but is not a file
    return single or opened or not hasattr(images, "__iter__")


def readable(image: Any) -> Readable:
    """Convert an image in any form to a path, a record, or an RGB uint8 tensor (3, H, W). Raises DataError."""
    made: Readable
    match image:
        case Record():
            made = image
        case str() if image.startswith(("http://", "https://")):
            made = read_picture(_fetched(image), image)
        case str() | os.PathLike():
            made = _path_of(os.fspath(image))
        case bytes() | bytearray() | memoryview():
            made = read_picture(bytes(image), "the content")
        case Mapping() if image.get("bytes") or image.get("path"):
            made = readable(image.get("bytes") or image["path"])
        case Image.Image():
            made = as_picture(upright_pixels(image))
        case torch.Tensor():
            made = _from_array(image.detach().cpu().numpy(), "a tensor")
        case np.ndarray():
            made = _from_array(image, "an array")
        case _ if isinstance(record := getattr(image, "record", None), Record):  # such as an `Example`
            made = record
        case _ if hasattr(image, "read"):
            made = read_picture(_content(image), str(getattr(image, "name", "an open file")))
        case _:
            kind = f"{type(image).__module__}.{type(image).__qualname__}".removeprefix("builtins.")
            if isinstance(image, Mapping) and not image.keys() & {"bytes", "path"}:
                kind += f" with {', '.join(map(str, image))[:100] or 'nothing'} (row['image'] is the image of a row)"
            raise DataError(f"found {kind}; expected {WANTED}")
    return made


def _path_of(image: str) -> Path:
    """Return the path of an image. Raises DataError for a folder, an empty text, and a URL that cannot be fetched."""
    scheme = SCHEME.match(image)
    if not image or scheme is not None:
        what = "an empty path" if scheme is None else f"an address that begins with {scheme[0]}"
        raise DataError(f"found {what}; expected {WANTED}")
    path = path_of(image)
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise DataError(f"{image[:100]} cannot be a path: {error.strerror}; expected {WANTED}") from error
    if is_folder:
        files = f"sorted(Path({image!r}).iterdir())"
        raise DataError(f"{image} is a folder, not an image; pass its files: {files}")
    return path


def _content(file: Any) -> bytes:
    try:
        content = file.read()
    except (OSError, ValueError) as error:  # the file is closed, or open for writing
        raise DataError(f"an open file cannot be read: {error}; open it with mode 'rb'") from error
    if not isinstance(content, bytes) or not content:
        content = "text" if content else "no bytes"
        raise DataError(f"the open file returned {content}; open it with mode 'rb', and rewind it with .seek(0)")
    return content


def _from_array(array: NDArray[Any], kind: str) -> Picture:
    """Convert an array (H, W, 3) or (3, H, W), of uint8 or of floats from 0 to 1, to uint8 (3, H, W)."""
    what = f"found {kind} of {array.dtype} and shape {array.shape}"
    if array.ndim != 3 or 3 not in (array.shape[0], array.shape[2]) or sorted(array.shape)[1] < SMALLEST_SIDE:
        size = f"at least {SMALLEST_SIDE} pixels on each side; for grey or RGBA pass PIL.Image.fromarray(array)"
        raise DataError(f"{what}; expected (H, W, 3) or (3, H, W), RGB, {size}")
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (-0.002 <= low <= high <= 1.002):  # half a grey level (1/510) of tolerance, for rounding
            mend = "divide by 255" if low >= 0 and 2 < high <= 255 else "undo its normalisation"
            raise DataError(f"{what} with values from {low:.3g} to {high:.3g}; expected 0 to 1: {mend}")
        array = (array * 255).round().clip(0, 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise DataError(f"{what}; expected uint8 (0 to 255: .astype('uint8')) or floats from 0 to 1")
    layout = array if array.shape[0] == 3 else array.transpose(2, 0, 1)
    return torch.from_numpy(np.array(layout, order="C"))


def _fetched(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "diptych"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            content: bytes = response.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot fetch {url}: {error}; download it, and pass the file") from error
    if len(content) > MOST_BYTES:
        raise DataError(f"{url} is larger than {MOST_BYTES >> 20} MiB; download it, make it smaller, and pass the file")
    return content


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists of at most BATCH."""
    left = iter(items)
    while batch := list(islice(left, BATCH)):
        yield batch


def paired(images: Iterable[Any], texts: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield (image, text) pairs. Raises DataError if there are more images than texts, or the reverse."""
    try:
        yield from zip(images, texts, strict=True)
    except ValueError as error:
        if not str(error).startswith("zip()"):
            raise
        raise DataError(
            "the numbers of images and texts differ; pass as many images as texts, or a single image or text"
        ) from error


def numbered(number: int | None, error: DataError) -> DataError:
    """Return the error with the image's index in the list. `number`: the index, None for a single image."""
    return error if number is None else DataError(f"image {number}: {error}")


def name_of(image: Any, number: int) -> Path:
    """Return the path of an image. For an image without a path, its index `number` serves as the path."""
    record = getattr(image, "record", image)
    if isinstance(record, Record):
        return record.image or Path(record.key)
    return Path(image) if isinstance(image, str | os.PathLike) else Path(str(number))
