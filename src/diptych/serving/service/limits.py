"""Limits of a service; requests beyond them are refused."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits on requests, images and waiting times."""

    deadline: float = 10.0  # seconds from the last byte of a request to its answer
    queue: int = 64  # requests that wait for the worker
    batch: int = 16  # requests in one batch
    linger: float = 0.02  # most seconds to wait for a batch as large as the last
    body: int = 16 * 2**20  # bytes of a request
    pixels: int = 40_000_000  # of an image
    quick_pixels: int = 2**21  # most pixels of an image that is decoded at full priority
    waiting_bytes: int = 512 * 2**20  # size of all decoded images that wait
    upload: float = 10.0  # seconds in which a request must arrive
    decoders: int = 2  # images decoded at a time, each by a process
    decoding: float = 5.0  # CPU seconds in which an image must be decoded
    arriving_bytes: int = 256 * 2**20  # of all bodies that are being received
    signs: int = 10_000  # commas and opening brackets of a JSON body: a bound on its items, keys and depth
