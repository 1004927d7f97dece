"""HTTP clients for benchmarks of the service. They share its cores, so they are cheap: each keeps one connection open
and sends requests that were encoded before."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

END = b"\r\n\r\n"
BOUNDARY = "a-part-of-the-form"


def form(picture: bytes, fields: dict[str, str] | None = None, task: str = "caption", name: str = "a.png") -> bytes:
    """Return a complete HTTP request: a form with an image and further fields."""
    parts = [f'form-data; name="{key}"\r\n\r\n{value}' for key, value in (fields or {}).items()]
    head = "".join(f"--{BOUNDARY}\r\nContent-Disposition: {part}\r\n" for part in parts)
    head += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n\r\n'
    body = head.encode() + picture + f"\r\n--{BOUNDARY}--\r\n".encode()
    return post(f"/v1/{task}", body, f"multipart/form-data; boundary={BOUNDARY}")


def post(path: str, body: bytes, kind: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1", "replace") + body


@dataclass(frozen=True)
class Answer:
    status: int
    head: bytes
    body: bytes = field(repr=False)

    @property
    def retry_after(self) -> float:
        found = re.search(rb"\r\nretry-after: (\d+)", self.head, re.IGNORECASE)
        return float(found[1]) if found else 1.0


class Connection:
    """An HTTP connection. It is opened at the first request, and again if the service has closed it."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(END)
        length = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        if re.search(rb"\r\nconnection: close", head, re.IGNORECASE):
            self.close()
        return Answer(int(head[9:12]), head, body)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@dataclass
class Tally:
    """Results of a run of clients: seconds of each answered request, number of responses by status, and the clients'
    own cost."""

    waits: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    took: float = 0.0
    clients_cpu: float = 0.0  # CPU seconds of this process


async def closed_loop(
    address: tuple[str, int], requests: Sequence[bytes], clients: int, seconds: float = float("inf"), most: int = 2**62
) -> Tally:
    """Run `clients` clients until `seconds` are over or `most` requests are sent. Each waits for its answer before it
    sends the next request; after a 503 it waits as long as Retry-After demands."""
    tally, turns = Tally(), count()
    begun, cpu = time.perf_counter(), time.process_time()

    async def client() -> None:
        connection = Connection(*address)
        while time.perf_counter() < begun + seconds and (turn := next(turns)) < most:
            sent = time.perf_counter()
            answer = await connection.ask(requests[turn % len(requests)])
            tally.statuses[answer.status] += 1
            if answer.status == 200:
                tally.waits.append(time.perf_counter() - sent)
            else:
                await asyncio.sleep(answer.retry_after)
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    tally.took, tally.clients_cpu = time.perf_counter() - begun, time.process_time() - cpu
    return tally
