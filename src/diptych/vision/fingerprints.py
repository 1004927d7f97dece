"""Fingerprints of images: three 64-bit hashes that detect equal images and near copies."""

import hashlib

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.vision.upright import Pixels


def image_fingerprint(pixels: Pixels) -> tuple[int, int, int]:
    """Return three hashes of an image (H, W, 3): content hash, difference hash, difference hash of the mirrored image.

    A hash is a number from 0 to 2**64 - 1.

    The content hash is computed from the decoded pixels, so it does not depend on the file's name, lossless format or
    metadata. Near copies, such as a resized or newly compressed image, have difference hashes that differ in a few
    bits.
    """
    content = hashlib.sha256(repr(pixels.shape).encode())
    content.update(np.ascontiguousarray(pixels).data)
    cells = _cells(Image.fromarray(pixels))
    return int.from_bytes(content.digest()[:8]), _differences(cells), _differences(cells[:, ::-1])


def dhash(image: Image.Image) -> int:
    """Return the difference hash (Krawetz) of an image.

    It has 64 bits; a bit is 1 if a grey cell is brighter than its left neighbour.
    """
    return _differences(_cells(image))


def _cells(image: Image.Image) -> NDArray[np.int16]:
    return np.asarray(image.convert("L").resize((9, 8), Image.Resampling.LANCZOS), dtype=np.int16)


def _differences(cells: NDArray[np.int16]) -> int:
    bits = (cells[:, 1:] > cells[:, :-1]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes())
