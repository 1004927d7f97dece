"""Check the host, origin and token of each request, add security headers to each response, and log requests."""

import base64
import binascii
import hmac
import ipaddress
import json
import logging
import socket
import sys
import time
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diptych_serve.service.problems import RequestRefused

OPEN = ("/healthz", "/readyz")  # paths of health checks, which need no token
POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
log = logging.getLogger("diptych.serve")


class RequestGuard:
    """An ASGI wrapper that rejects requests for other hosts (421), from other sites (403) and without the token (401).

    It also sets security headers.
    """

    def __init__(self, app: ASGIApp, token: str | None = None, hosts: Iterable[str] = ()) -> None:
        self.app, self.token = app, token
        self.hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, log = time.perf_counter(), scope.setdefault("state", {})
        status = 500

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in POLICY.items():
                    headers[name] = value
            await send(message)

        try:
            self._check(scope)
            # HEAD is handled like GET; the server omits the body (RFC 9110, 9.3.2).
            await self.app({**scope, "method": "GET"} if scope["method"] == "HEAD" else scope, receive, guarded)
        except RequestRefused as refused:
            response = refused.response()
            if refused.status == 401:
                response.headers["WWW-Authenticate"] = 'Basic realm="diptych", charset="UTF-8"'
            await response(scope, receive, guarded)
        finally:
            _log(scope, status, time.perf_counter() - begun, log)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._ours(host):
            raise RequestRefused(421, f"unknown host {host[:100]!r}; use an IP address, or --allow-host NAME", "host")
        self._check_site(scope, headers, host)
        if self.token is not None and scope["path"] not in OPEN and not self._knows_token(headers):
            raise RequestRefused(
                401, "missing or wrong token; send it as Authorization: Bearer TOKEN or as password", "authorization"
            )

    def _ours(self, host: str) -> bool:
        """Return True if the Host header is an IP address or a known name.

        Another name that resolves to this machine may be an attack (DNS rebinding).
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.hosts
        return True

    def _check_site(self, scope: Scope, headers: Headers, host: str) -> None:
        origin = headers.get("origin")
        elsewhere = scope["method"] not in ("GET", "HEAD") and headers.get("sec-fetch-site") in (
            "cross-site",
            "same-site",
        )
        if elsewhere or (origin is not None and _place(origin) != host.lower()):
            raise RequestRefused(
                403,
                f"the request is from another site's page ({(origin or 'unnamed')[:100]}); open the service's own page",
                "origin",
            )

    def _knows_token(self, headers: Headers) -> bool:
        assert self.token is not None
        scheme, _, encoded = headers.get("authorization", "").partition(" ")
        given = encoded.strip().encode("latin-1")  # latin-1 is the encoding of HTTP headers
        if scheme.lower() == "basic":  # from a browser's login prompt; any user name is accepted
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given, self.token.encode())


def _place(origin: str) -> str:
    """Return HOST:PORT of an origin, such as https://a.test."""
    with suppress(ValueError):
        return urlsplit(origin).netloc.lower()
    return ""


def _log(scope: Scope, status: int, seconds: float, fields: MutableMapping[str, Any]) -> None:
    """Write a line of JSON about a request to the log.

    The line does not contain the image, the image's name or any text of the request.
    """
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "method": scope["method"],
        "path": scope["path"][:100],
        "status": status,
        "ms": round(1000 * seconds, 1),
    }
    if (timing := fields.get("timing")) is not None:
        line |= {"task": fields.get("task"), "model": fields.get("model"), "batch": timing.batch}
        line |= {f"{part}_ms": round(getattr(timing, part), 1) for part in ("queue", "extraction", "model")}
    if "error" in fields:
        line["error"] = fields["error"]
    log.info(json.dumps(line, ensure_ascii=True))


def start_log() -> None:
    """Write the request log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # the service logs each rejected body
