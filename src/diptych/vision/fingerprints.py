"""Fingerprints of images: a hash that detects equal images, and a hash that detects near copies."""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.vision.upright import Pixels

NEAR = 24  # the perceptual hashes of near copies differ in at most this many of 256 bits
MOST_NEAR = 31  # the largest number of different bits with which `near_pairs` finds all pairs
AT_ONCE = 2_000_000  # about this many pairs of hashes are compared at once
U64 = NDArray[np.uint64]
Indices = NDArray[np.int64]

_CELLS, _WAVES = 32, 16  # the image is resized to 32 x 32 cells, of which 16 x 16 frequencies are computed
_USED = (216, 20, 20)  # number of bits of brightness (Y) and of both colours (Cb, Cr), from the lowest frequency
_ORDER = np.argsort(np.add.outer(np.arange(_WAVES), np.arange(_WAVES)).ravel(), kind="stable")
# Rounded to integers, so that each machine computes the same bits (16, 32).
_COSINES = np.rint(
    1024 * np.cos(np.pi * np.arange(_WAVES)[:, None] * (2 * np.arange(_CELLS) + 1) / (2 * _CELLS))
).astype(np.int64)


def image_fingerprint(pixels: Pixels) -> tuple[int, int]:
    """Return two hashes of an image (H, W, 3): the content hash (64 bits) and the perceptual hash (256 bits).

    The content hash is computed from the decoded pixels, so it does not depend on the file's name, lossless format or
    metadata. Near copies, such as a resized or newly compressed image, have perceptual hashes that differ in a few
    bits.
    """
    content = hashlib.sha256(repr(pixels.shape).encode())
    content.update(np.ascontiguousarray(pixels).data)
    return int.from_bytes(content.digest()[:8]), int.from_bytes(perceptual_hash(Image.fromarray(pixels)))


def perceptual_hash(image: Image.Image) -> bytes:
    """Return the perceptual hash of an RGB image, 32 bytes: pHash with colours.

    Each bit is the sign of a coefficient of the cosine transform of Y, Cb or Cr. An image of one colour has the hash 0.
    """
    small = image.resize((_CELLS, _CELLS), Image.Resampling.LANCZOS).convert("YCbCr")
    cells = np.asarray(small, np.int64).transpose(2, 0, 1)
    waves = (_COSINES @ (cells - cells[:, :1, :1]) @ _COSINES.T).reshape(3, -1)[:, _ORDER]
    return _packed(waves > 0)


def _packed(bits: NDArray[np.bool_]) -> bytes:
    """Return the used bits of three channels (3, 256). Each 16 of them have low and high frequencies (`near_pairs`)."""
    used = np.concatenate([own[:number] for own, number in zip(bits, _USED, strict=True)])
    return np.packbits(used.reshape(16, 16).T).tobytes()


def matrix(hashes: Iterable[bytes]) -> U64:
    """Return N perceptual hashes as an array (N, 4)."""
    return np.frombuffer(b"".join(hashes), np.uint64).reshape(-1, 4)


def of_mirrored(hashes: U64) -> U64:
    """Return the perceptual hashes (N, 4) of the mirrored images."""
    odd = np.tile(_ORDER % 2 == 1, (3, 1))  # waves of odd horizontal frequency have the opposite sign there
    return hashes ^ matrix([_packed(odd)])


def near_pairs(tested: U64, seen: U64, bits: int) -> tuple[Indices, Indices]:
    """Return all pairs of a tested and a seen hash that differ in at most `bits` (up to MOST_NEAR) of 256 bits.

    `tested`: (M, 4). `seen`: (N, 4). The pairs are two arrays of indices, sorted by the first, then by the second.

    A hash is cut into 16 words of 16 bits. In a near pair, at least one word differs in at most one bit. So only pairs
    with such a word are compared.
    """
    flips = np.append(0, 1 << np.arange(16)).astype(np.uint16)
    near = [np.zeros(0, np.int64)]
    for tested_word, seen_word in zip(tested.view(np.uint16).T, seen.view(np.uint16).T, strict=True):
        order = np.argsort(seen_word, kind="stable")
        counts = np.bincount(seen_word, minlength=2**16)
        firsts = np.cumsum(counts) - counts
        wanted = tested_word[:, None] ^ flips
        total = np.cumsum(counts[wanted].sum(1))  # number of comparisons up to each tested hash
        edges = np.unique(np.searchsorted(total, np.arange(0, total[-1:].sum() + AT_ONCE, AT_ONCE)))
        for low, high in zip(edges, np.append(edges[1:], len(tested)), strict=True):
            some = wanted[low:high].ravel()
            number = counts[some]
            row = np.repeat(np.arange(low, high).repeat(len(flips)), number)
            before = np.cumsum(number) - number
            place = order[np.arange(len(row)) + np.repeat(firsts[some] - before, number)]
            close = np.bitwise_count(tested[row] ^ seen[place]).sum(1) <= bits
            near.append(row[close] * len(seen) + place[close])
    pairs = np.unique(np.concatenate(near))
    return np.divmod(pairs, max(1, len(seen)))
