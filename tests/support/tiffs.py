"""TIFF files."""

import struct

import numpy as np


def grey_tiff(values: np.ndarray, bits: int, form: int, white: int) -> bytes:
    """A TIFF as scanners write it. `form`: 1 unsigned, 2 signed, 3 float. `white`: 0 if white is 0, else 1."""
    height, width = values.shape
    pixels = values.tobytes()
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: white, 273: 8, 277: 1, 278: height, 279: len(pixels)}
    entries = b"".join(struct.pack("<HHII", *entry) for entry in ((tag, 4, 1, one) for tag, one in tags.items()))
    entries += struct.pack("<HHII", 339, 3, 1, form)
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + struct.pack("<H", 10) + entries + bytes(4)
