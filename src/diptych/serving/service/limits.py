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
    waiting_bytes: int = 512 * 2**20  # of all decoded images that wait
    upload: float = 10.0  # seconds in which a request must arrive
    decoders: int = 2  # images decoded at a time
