"""An HTTP server for the test web on 127.0.0.1. It answers for all hosts.

For some URLs it simulates faults, such as a slow or endless response.
"""

import gzip
import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from diptych.runtime.errors import DataError
from diptych_world.web.plan import CLOSED

CHUNK = b"\xff\xd8\xff\xe0" + b"\0" * 65_532
MEDIA = {"jpg": "image/jpeg", "png": "image/png", "svg": "image/svg+xml", "gif": "image/gif", "html": "text/html"}


@dataclass
class Request:
    """A request in the server's log."""

    host: str
    path: str
    at: float
    agent: str
    at_once: int = 0  # number of open requests to this host when this request arrived, including it


class Server(ThreadingHTTPServer):
    """The HTTP server for a folder written by `web.write`. `log`: all requests.

    Raises DataError if the folder has no test web.
    """

    request_queue_size = 128

    def __init__(self, folder: Path, port: int = 0, patience: float = 60.0) -> None:
        """`patience`: seconds that a slow host waits before it sends anything."""
        path = folder / "serving.json"
        if not path.exists():
            raise DataError(f"no test web in {folder}; write one: diptych storybook web --out {folder}")
        self.folder, self.patience, self.log = folder, patience, list[Request]()
        self.faults: dict[str, str] = json.loads(path.read_text("utf-8"))
        self.under_way: dict[str, int] = {}
        self.counting = Lock()
        _gzip_bomb()  # computed before the first request, because it is slow
        super().__init__(("127.0.0.1", port), _Answer)

    @property
    def port(self) -> int:
        return self.server_port

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # ignore clients that disconnect
            super().handle_error(request, client_address)

    def count(self, host: str, change: int) -> int:
        """Add `change` (1 or -1) to the number of requests in progress to a host. Return the new number."""
        with self.counting:
            self.under_way[host] = self.under_way.get(host, 0) + change
            return self.under_way[host]


class _Answer(BaseHTTPRequestHandler):
    """Handles one connection. For a URL in serving.json, it simulates the fault named there."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *_: object) -> None:
        """Print nothing; the base class would print each request."""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").partition(":")[0]
        agent = self.headers.get("User-Agent", "")
        request = Request(host, self.path, time.monotonic(), agent, self.server.count(host, 1))
        self.server.log.append(request)
        try:
            self._respond(host)
        finally:
            self.server.count(host, -1)

    def _respond(self, host: str) -> None:
        origin, _, step = self.path.partition("?")
        file = self._file(host, origin)
        match kind := self.server.faults.get(f"http://{host}{origin}", ""):
            case "status_404" | "status_503" | "status_429":
                self._send(int(kind[-3:]), b"no")
            case "loop":
                self._redirect(f"http://{host}{origin}?{'b' if step != 'b' else 'a'}")
            case "chain_5" | "chain_6" if int(step or 0) < int(kind[-1]):
                self._redirect(f"{origin}?{int(step or 0) + 1}")
            case "metadata":
                self._redirect("http://169.254.169.254/latest/meta-data/")
            case "opt_out_header":
                body = file.read_bytes() if file is not None else b""
                self._send(200, body, "image/jpeg", **{"X-Robots-Tag": "noai, noimageai"})
            case "gzip_bomb":
                self._send(200, _gzip_bomb(), "image/jpeg", **{"Content-Encoding": "gzip"})
            case "slow":
                time.sleep(self.server.patience)
            case "drip" | "endless" | "reset":
                self._pour(kind)
            case _ if origin == "/robots.txt":
                self._robots(host)
            case _ if file is not None:
                self._send(200, file.read_bytes(), MEDIA.get(file.suffix[1:], "application/octet-stream"))
            case _:
                self._send(404, b"not found")

    def _file(self, host: str, path: str) -> Path | None:
        for folder in ("files", "html"):
            root = (self.server.folder / folder).resolve()
            file = (root / host / path.lstrip("/")).resolve()
            if file.is_relative_to(root) and file.is_file():
                return file
        return None

    def _robots(self, host: str) -> None:
        if host != CLOSED and host.endswith(("3.test", "7.test")):
            self._send(404, b"none")
        else:
            self._send(200, b"User-agent: *\n" + (b"Disallow: /closed/\n" if host == CLOSED else b"Allow: /\n"))

    def _pour(self, kind: str) -> None:
        """Send an image in small pieces, endlessly or cut short. `kind`: the fault."""
        self.close_connection = True
        self._head(200, "image/jpeg", {} if kind == "endless" else {"Content-Length": "50000"})
        self.wfile.write(CHUNK[:2000])
        while kind != "reset":
            self.wfile.write(CHUNK if kind == "endless" else b"\0")
            time.sleep(0 if kind == "endless" else 0.5)

    def _redirect(self, address: str) -> None:
        self._send(302, b"", Location=address)

    def _send(self, status: int, body: bytes, media: str = "text/plain", **more: str) -> None:
        self._head(status, media, {"Content-Length": str(len(body)), **more})
        self.wfile.write(body)

    def _head(self, status: int, media: str, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": media, **more}.items():
            self.send_header(name, value)
        self.end_headers()


@cache
def _gzip_bomb() -> bytes:
    return gzip.compress(b"\0" * 60_000_000, 1)


def serve(folder: Path, port: int) -> None:
    """Serve the folder until Ctrl-C. Port 0 means any free port."""
    with suppress(KeyboardInterrupt), Server(folder, port) as server:
        print(
            f"the test web is served on 127.0.0.1:{server.port}; to fetch from it: --allow 127.0.0.0/8 "
            f"--resolve rebinding.test=10.0.0.1 --resolve '*.test=127.0.0.1:{server.port}'"
        )
        server.serve_forever()
