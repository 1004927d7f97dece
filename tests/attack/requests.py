"""Requests of damaged bytes, and images that cost far more than their size, to a real service: it refuses or answers
them, and answers the next good request."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from random import Random

from benchmarks.clients import form, post
from benchmarks.hostile_images import jpeg_of_many_scans, plain_ppm, tiff_of_one_tile
from diptych_serve.service.limits import Limits
from diptych_serve.service.service import Service
from tests.attack.kills import Broken
from tests.support.service import listening, make_model, picture

EACH = 20
PATIENCE = 0.3  # seconds: a request that was cut short is waited for by the service
HEADERS = (
    *(b"Host: b", b"Content-Length: 5", b"Content-Length: 0", b"Transfer-Encoding: chunked", b"Connection: upgrade"),
    *(b"Transfer-Encoding: identity", b"Expect: 100-continue", b" folded", b"X: \0", b"Accept: \xff", b"A : b"),
)
QUESTION = b'{"question": ["a", {"b": [1]}]}'


def answered(number: int, place: Path) -> Broken | None:
    """Send requests that `number` draws. What breaks: a status of 500 or more but 503, a traceback, a lost service."""
    rng = Random(f"requests/{number}")
    place.mkdir(parents=True, exist_ok=True)
    limits = Limits(decoding=0.5)
    with listening(Service({"toy": make_model(place / "model")}, limits=limits)) as address:
        for turn in range(EACH):
            received = _send(address, _drawn(rng), PATIENCE)
            status = received[9:12]
            if received and (
                not status.isdigit() or (status >= b"500" and status != b"503") or b"Traceback" in received
            ):
                return Broken("requests", f"{number}/{turn}", f"answered {received[:300]!r}")
        good = _send(address, form(picture()), 20.0)
    return None if good.startswith(b"HTTP/1.1 200") else Broken("requests", str(number), f"a good one: {good[:300]!r}")


def _drawn(rng: Random) -> bytes:
    side = rng.choice((8, 300, 1000))
    images = (
        picture(),
        jpeg_of_many_scans(side, rng.choice((3, 15, 300))),
        tiff_of_one_tile(side),
        plain_ppm(side, 30),
    )
    whole = rng.choice(
        (form(rng.choice(images)), post("/v1/ask", b'{"question": ["a", {"b": [1]}]}', "application/json"))
    )
    head, _, body = whole.partition(b"\r\n\r\n")
    if rng.random() < 0.5:
        lines = head.split(b"\r\n")
        lines.insert(rng.randint(1, len(lines)), rng.choice(HEADERS))
        head = b"\r\n".join(lines)
    damaged = bytearray(head + rng.choice((b"\r\n\r\n", b"\r\n\r\n", b"\n\n")) + body)
    for _ in range(rng.choice((0, 1, 4))):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged[: rng.choice((len(damaged), rng.randint(1, len(damaged))))])


def _send(address: tuple[str, int], request: bytes, seconds: float) -> bytes:
    with socket.create_connection(address, timeout=seconds) as one, suppress(OSError):
        one.sendall(request)
        return one.recv(65536)
    return b""
