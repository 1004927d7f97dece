"""Run the service on a port with uvicorn: time limits for slow clients, and a graceful shutdown."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from diptych.runtime.errors import ServingError
from diptych.serving.service.app import make_app
from diptych.serving.service.guard import RequestGuard, start_log
from diptych.serving.service.service import Service

PATIENCE = 15.0  # seconds for a whole request to arrive, and for a client to read the answer
CONNECTIONS = 1000
LOOPBACK = ("localhost", "127.", "::1")


class Patient(H11Protocol):
    """Close connections whose client sends a request too slowly or does not read the answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._timer = self.loop.call_later(1.0, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def _check(self) -> None:
        computing = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if computing and not self.flow.write_paused:
            self._since = self.loop.time()
        elif self.loop.time() - self._since > PATIENCE:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(1.0, self._check)


def is_loopback(host: str) -> bool:
    return host.startswith(LOOPBACK)


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises ServingError if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol given, asyncio sets TCP_NODELAY; without it, each answer waits 40 ms for an acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ServingError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; give a free --port (0: any) or another --host"
        ) from error
    return bound


def make_server(
    service: Service, token: str | None = None, hosts: Iterable[str] = (), ready: Callable[[], object] = lambda: None
) -> uvicorn.Server:
    config = uvicorn.Config(
        RequestGuard(make_app(service), token, hosts),
        http=Patient,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=max(1, int(service.limits.deadline)),
    )
    return _Server(config, ready)


def serve(server: uvicorn.Server, bound: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in progress are finished within the deadline."""
    start_log()
    # uvicorn raises the signal again after its shutdown; ignore it, so that SIGTERM ends the call normally.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        server.run(sockets=[bound])
    finally:
        signal.signal(signal.SIGTERM, before)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, *given: Any, **named: Any) -> None:
        await super().startup(*given, **named)
        if self.started:
            self._ready()
