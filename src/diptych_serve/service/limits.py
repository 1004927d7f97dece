"""Limits of a service. Requests that exceed a limit are rejected."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits on requests, images and waiting times."""

    deadline: float = 10.0  # seconds from the end of a request to its answer
    queue: int = 64  # maximum number of requests that wait for the worker
    batch: int = 16  # maximum number of requests in a batch
    linger: float = 0.02  # maximum number of seconds for which a batch waits for more requests
    body: int = 16 * 2**20  # maximum size of a request in bytes
    pixels: int = 40_000_000  # maximum number of pixels of an image
    quick_pixels: int = 2**21  # images of more pixels are decoded with low priority
    waiting_bytes: int = 512 * 2**20  # maximum size in bytes of all decoded images in the queue
    upload: float = 10.0  # seconds within which a request must arrive
    decoders: int = 2  # number of decoding processes
    decoding: float = 5.0  # maximum number of CPU seconds for decoding an image
    arriving_bytes: int = 256 * 2**20  # maximum size in bytes of all request bodies that are arriving
    signs: int = 10_000  # maximum number of commas and opening brackets in JSON, which bounds its items and depth
