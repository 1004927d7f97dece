"""Run the service on a port with uvicorn, and shut it down gracefully."""

import signal
import socket
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn

from diptych.runtime.errors import ServingError
from diptych_serve.service.app import make_app
from diptych_serve.service.guard import RequestGuard, start_log
from diptych_serve.service.protocol import Patient
from diptych_serve.service.service import Service


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ServingError if the port cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # If the protocol is given, asyncio sets TCP_NODELAY. Otherwise each response waits 40 ms for an acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ServingError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; pass a free --port (0: any) or another --host"
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
        timeout_keep_alive=5,
        timeout_graceful_shutdown=max(1, int(service.limits.deadline)),
    )
    return _Server(config, ready)


def serve(server: uvicorn.Server, bound: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C. Requests in progress are then still answered, within the deadline."""
    start_log()
    # uvicorn raises the signal again after its shutdown. It is ignored, so that this function returns after SIGTERM.
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
