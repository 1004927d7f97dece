"""The HTTP/1.1 protocol of the service: strict parsing (RFC 9112), and limits on connections and slow clients.

The parser llhttp runs in strict mode: it rejects bare LF, folded headers, and Content-Length with Transfer-Encoding.
Further rules are checked here: a single Host header, a known HTTP version, and a limited size of the headers.
"""

import asyncio
from collections import Counter
from typing import Any

import httptools
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from diptych_serve.service.guard import OPEN
from diptych_serve.service.problems import RequestRefused

PATIENCE = 15.0  # seconds within which a request must arrive, and within which the client must read the response
CONNECTIONS = 1000
PER_CLIENT = 250  # maximum number of connections served per IP address; twice as many may be open
HEAD = 64 * 2**10  # maximum size in bytes of the request line and headers
CROWDED = RequestRefused(503, "the service has too many connections; retry in some seconds", retry=5, close=True)
NOT_HTTP = "the request is not valid HTTP (RFC 9112)"
RATE, BURST, LONGEST = 10.0, 20, 5.0  # refusals per second and address; how many are not delayed; seconds


class Pace:
    """Delays refusals to addresses that get many, because a client sends its next request once the last is answered."""

    def __init__(self) -> None:
        self._due: dict[str | None, float] = {}  # address -> time at which its next refusal may be sent

    def delay(self, address: str | None, now: float) -> float:
        """Return the seconds after which a refusal may be sent, and count it as sent."""
        if len(self._due) > CONNECTIONS:
            self._due = {one: due for one, due in self._due.items() if due > now - BURST / RATE}
        due = max(self._due.get(address, 0.0), now - BURST / RATE)
        self._due[address] = min(due + 1 / RATE, now + LONGEST)
        return max(0.0, due - now)


class Patient(HttpToolsProtocol):
    """Closes a connection if the client sends a request too slowly, or does not read the response."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head: int | None = 0  # bytes of the request line and headers so far; None while a body arrives
        self.since = self.loop.time()
        if len(own := self._own()) > 2 * PER_CLIENT:  # close the connection that has been idle for longest
            min(own, key=lambda one: (one.is_answered_soon, one.since)).transport.abort()
        self._timer = self.loop.call_later(1.0, self._check)

    @property
    def address(self) -> str | None:
        return self.client[0] if self.client else None

    @property
    def is_answered_soon(self) -> bool:
        """True if a request has arrived and its response was not sent yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
        try:
            self._unset_keepalive_if_required()
            self.parser.feed_data(data)
            if self._head is not None and self._head > HEAD:
                raise httptools.HttpParserError
        except httptools.HttpParserUpgrade:  # a server may ignore Upgrade (RFC 9110, 7.8)
            pass
        except httptools.HttpParserError:
            self._refuse()

    def _refuse(self) -> None:
        """Reject data that is not HTTP, and close the connection, because the start of the next request is unknown."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or not cycle.more_body or self.pipeline:  # an earlier request is being answered
                cycle.keep_alive = False
                self.pipeline.clear()
                self.transport.pause_reading()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.pause_reading()
        self.loop.call_later(self._delay(), self._end)

    def _end(self) -> None:
        body = RequestRefused(400, NOT_HTTP, close=True).response()
        headers = b"".join(b"%s: %s\r\n" % pair for pair in body.raw_headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%s\r\n%s" % (headers, bytes(body.body)))
        self.transport.close()

    def _delay(self) -> float:
        pace: Pace = self.app_state.setdefault("pace", Pace())  # one for all connections of the server
        return pace.delay(self.address, self.loop.time())

    async def _paced(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application, and delay its refusals."""

        async def later(message: Message) -> None:
            if message["type"] == "http.response.start" and 400 <= message["status"] < 500:
                await asyncio.sleep(self._delay())
            await send(message)

        await self.config.loaded_app(scope, receive, later)

    def on_headers_complete(self) -> None:
        names = [name for name, _ in self.headers]
        head = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        version = self.parser.get_http_version()
        hosts, coded = names.count(b"host"), [value for name, value in self.headers if name == b"transfer-encoding"]
        if (
            head > HEAD
            or version not in ("1.0", "1.1")
            or hosts > 1
            or (version == "1.1" and hosts != 1)
            or (coded and (version == "1.0" or [one.strip().lower() for one in coded] != [b"chunked"]))
            or (coded and b"content-length" in names)
        ):
            raise httptools.HttpParserError
        self._head = None
        path = self.url.partition(b"?")[0].decode("latin-1")
        self.app: Any = CROWDED.response() if path not in OPEN and self._is_crowded() else self._paced
        super().on_headers_complete()

    def _is_crowded(self) -> bool:
        if len(self.connections) <= PER_CLIENT:
            return False
        by_address = Counter(one.address for one in self.connections if isinstance(one, Patient))
        if by_address[self.address] > PER_CLIENT:
            return True
        return sum(min(count, PER_CLIENT) for count in by_address.values()) > CONNECTIONS

    def _own(self) -> "list[Patient]":
        """Return the open connections of this client's address.

        If all clients together have at most PER_CLIENT connections, return [] without a search, because then no client
        can be over its limit.
        """
        if len(self.connections) <= PER_CLIENT:
            return []
        ours = (one for one in self.connections if isinstance(one, Patient) and one.address == self.address)
        return [one for one in ours if not one.transport.is_closing()]

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def _check(self) -> None:
        computing = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if computing and not self.flow.write_paused:
            self.since = self.loop.time()
        elif self.loop.time() - self.since > PATIENCE:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(1.0, self._check)
