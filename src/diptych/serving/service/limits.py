"""What a service takes on: more is refused by name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    deadline: float = 10.0  # seconds from the last byte of a request to its answer
    queue: int = 64  # requests that wait for the worker
    batch: int = 16  # requests that share a pass
    linger: float = 0.02  # seconds that a batch waits at most to become as large as the last
    body: int = 16 * 2**20  # bytes of a request
    pixels: int = 40_000_000  # of a picture
    waiting_bytes: int = 512 * 2**20  # of all opened pictures that wait
    upload: float = 10.0  # seconds in which a request has to arrive
    decoders: int = 2  # pictures that are opened at a time
