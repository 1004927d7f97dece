"""Image files that are valid but cost far more to decode than their size suggests."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image

EOB_RUNS = [run << 4 for run in range(14, -1, -1)]  # Huffman symbols EOB14 to EOB0: runs of 2^14 to 1 empty blocks


def jpeg_of_many_scans(side: int, scans: int) -> bytes:
    """Return a grey progressive JPEG with `scans` scans that change nothing. Each has only 30 bytes but costs a pass
    over all blocks."""
    blocks = ((side + 7) // 8) ** 2
    bits, left = "", blocks
    while left > 0:
        run = min(14, left.bit_length() - 1)
        taken = min(left, (1 << (run + 1)) - 1)
        bits += f"{14 - run:04b}" + (f"{taken - (1 << run):0{run}b}" if run else "")
        left -= taken
    bits += "1" * (-len(bits) % 8)
    empty = int(bits, 2).to_bytes(len(bits) // 8).replace(b"\xff", b"\xff\x00")

    def scan(first: int, last: int, precision: int, data: bytes) -> bytes:
        return b"\xff\xda" + struct.pack(">HB", 8, 1) + bytes([1, 0, first, last, precision]) + data

    parts = [
        b"\xff\xd8\xff\xdb" + struct.pack(">HB", 67, 0) + bytes([1] * 64),
        b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, side, side, 1) + bytes([1, 0x11, 0]),
        b"\xff\xc4" + struct.pack(">H", 20) + bytes([0, 1, *[0] * 15, 0]),
        b"\xff\xc4" + struct.pack(">H", 34) + bytes([0x10, 0, 0, 0, 15, *[0] * 12, *EOB_RUNS]),
        scan(0, 0, 0x00, bytes((blocks + 7) // 8)),
        scan(1, 63, 0x01, empty),
        scan(1, 63, 0x10, empty) * scans,
        b"\xff\xd9",
    ]
    return b"".join(parts)


def tiff_of_one_tile(tile: int, side: int = 16) -> bytes:
    """Return a grey TIFF of `side` x `side` pixels with one compressed tile of `tile` x `tile`."""
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(bytes(tile)) for _ in range(tile)) + packer.flush()
    tags = [(256, 4, side), (257, 4, side), (258, 3, 8), (259, 3, 8), (262, 3, 1), (277, 3, 1), (322, 4, tile)]
    tags += [(323, 4, tile), (324, 4, 8 + 2 + 12 * 10 + 4), (325, 4, len(data))]
    entries = b"".join(
        struct.pack("<HHI", tag, kind, 1) + (struct.pack("<I", value) if kind == 4 else struct.pack("<HH", value, 0))
        for tag, kind, value in tags
    )
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", 0) + data


def plain_ppm(width: int, height: int) -> bytes:
    """Return a PPM whose pixels are written as decimal digits, which Pillow decodes slowly in Python."""
    return f"P3\n{width} {height}\n255\n".encode() + b"0 " * (3 * width * height)


def image(side: int = 40, kind: str = "PNG", colour: str = "red") -> bytes:
    """Return an ordinary image file of one colour."""
    content = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(content, kind)
    return content.getvalue()
