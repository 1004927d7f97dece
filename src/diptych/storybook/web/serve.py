"""A server for the test web on 127.0.0.1: it answers for all hosts and misbehaves where the plan wants it."""

import asyncio
import gzip
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any

from diptych.runtime.errors import DataError
from diptych.storybook.web.plan import CLOSED

CHUNK = b"\xff\xd8\xff\xe0" + b"\0" * 65_532
MEDIA = {"jpg": "image/jpeg", "png": "image/png", "svg": "image/svg+xml", "gif": "image/gif", "html": "text/html"}


@dataclass
class Request:
    """One request in the server's log."""

    host: str
    path: str
    at: float
    agent: str
    at_once: int = 0  # requests of this host under way when it came, including itself


@dataclass
class Server:
    """HTTP server on 127.0.0.1 for a folder written by `web.write`. `log` has every request. Raises DataError."""

    folder: Path
    patience: float = 60.0  # seconds before a slow host sends anything
    log: list[Request] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        path = self.folder / "serving.json"
        if not path.exists():
            raise DataError(f"no test web in {self.folder}; `diptych storybook web {self.folder}` writes one")
        self.faults: dict[str, str] = json.loads(path.read_text("utf-8"))
        self.under_way: dict[str, int] = {}
        _gzip_bomb()

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def forever(self) -> None:
        async with self._server:
            await self._server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                path = head[0].split(" ")[1]
                host = fields.get("host", "").partition(":")[0]
                self.under_way[host] = self.under_way.get(host, 0) + 1
                agent = fields.get("user-agent", "")
                self.log.append(Request(host, path, time.monotonic(), agent, self.under_way[host]))
                try:
                    await self._respond(host, path, writer)
                    await writer.drain()
                finally:
                    self.under_way[host] -= 1
        with suppress(Exception):
            writer.close()

    async def _respond(self, host: str, path: str, writer: asyncio.StreamWriter) -> None:
        if path == "/robots.txt":
            _robots(host, writer)
            return
        origin = path.partition("?")[0]
        kind = self.faults.get(f"http://{host}{origin}", "")
        file = self._file(host, origin)
        if await _misbehaved(kind, host, path, file, writer, self.patience):
            return
        if file is None:
            _send(writer, 404, b"not found")
        else:
            _send(writer, 200, file.read_bytes(), MEDIA.get(file.suffix[1:], "application/octet-stream"))

    def _file(self, host: str, path: str) -> Path | None:
        for folder in ("files", "html"):
            root = (self.folder / folder).resolve()
            file = (root / host / path.lstrip("/")).resolve()
            if file.is_relative_to(root) and file.is_file():
                return file
        return None


def _robots(host: str, writer: asyncio.StreamWriter) -> None:
    if host == CLOSED:
        _send(writer, 200, b"User-agent: *\nDisallow: /closed/\n")
    elif host.endswith(("3.test", "7.test")):
        _send(writer, 404, b"none")
    else:
        _send(writer, 200, b"User-agent: *\nAllow: /\n")


async def _misbehaved(
    kind: str, host: str, path: str, file: Path | None, writer: asyncio.StreamWriter, patience: float
) -> bool:
    """Answer with the fault `kind`; return False if it is no fault, so that the file is still to be sent."""
    origin, _, step = path.partition("?")
    match kind:
        case "status_404" | "status_503" | "status_429":
            _send(writer, int(kind[-3:]), b"no")
        case "loop":
            _redirect(writer, f"http://{host}{origin}?{'b' if step != 'b' else 'a'}")
        case "chain_5" | "chain_6":
            done, most = int(step or 0), int(kind[-1])
            if done == most:
                return False
            _redirect(writer, f"{origin}?{done + 1}")
        case "metadata":
            _redirect(writer, "http://169.254.169.254/latest/meta-data/")
        case "opt_out_header":
            body = file.read_bytes() if file is not None else b""
            _send(writer, 200, body, "image/jpeg", "X-Robots-Tag: noai, noimageai\r\n")
        case "gzip_bomb":
            _send(writer, 200, _gzip_bomb(), "image/jpeg", "Content-Encoding: gzip\r\n")
        case "slow":
            await asyncio.sleep(patience)
        case "drip" | "endless" | "reset":
            await _pour(kind, writer)
        case _:
            return False
    return True


@cache
def _gzip_bomb() -> bytes:
    return gzip.compress(b"\0" * 60_000_000, 1)


async def _pour(kind: str, writer: asyncio.StreamWriter) -> None:
    """Send a picture by drops, without end, or up to a reset of the connection."""
    length = "Content-Length: 50000\r\n" if kind != "endless" else ""
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n{length}\r\n".encode())
    writer.write(CHUNK[:2000])
    await writer.drain()
    if kind == "reset":
        transport: Any = writer.transport
        transport.abort()
        raise ConnectionResetError
    while True:
        writer.write(CHUNK if kind == "endless" else b"\0")
        await writer.drain()
        await asyncio.sleep(0 if kind == "endless" else 0.5)


def _redirect(writer: asyncio.StreamWriter, address: str) -> None:
    _send(writer, 302, b"", extra=f"Location: {address}\r\n")


def _send(writer: asyncio.StreamWriter, status: int, body: bytes, media: str = "text/plain", extra: str = "") -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    writer.write(head.encode() + body)


class Live:
    """A `Server` in its own thread, for tests and benchmarks: `with Live(folder) as server: server.port`."""

    def __init__(self, folder: Path, patience: float = 60.0) -> None:
        self.server = Server(folder, patience)
        self._ready = Event()

    def __enter__(self) -> Server:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()
        return self.server

    def _run(self) -> None:
        self._loop.run_until_complete(self.server.start())
        self._ready.set()
        with suppress(asyncio.CancelledError, RuntimeError):
            self._loop.run_until_complete(self.server.forever())

    def __exit__(self, *raised: object) -> None:
        def end() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()

        self._loop.call_soon_threadsafe(end)
        self._thread.join()
        self._loop.close()


def serve(folder: Path, port: int) -> None:
    """Serve the folder until Ctrl-C. Port 0 takes a free one."""

    async def run() -> None:
        server = Server(folder)
        await server.start(port)
        print(
            f"the test web is served on 127.0.0.1:{server.port}; to fetch from it: --allow 127.0.0.0/8 "
            f"--resolve rebinding.test=10.0.0.1 --resolve '*.test=127.0.0.1:{server.port}'"
        )
        await server.forever()

    with suppress(KeyboardInterrupt):
        asyncio.run(run())
