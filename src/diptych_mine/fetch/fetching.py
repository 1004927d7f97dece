"""Fetch URLs politely and safely.

Robots.txt, opt-outs, rates and limits of time and size are respected. No cookies are sent, and no proxies are used.
"""

from __future__ import annotations

import asyncio
import fnmatch
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from diptych.runtime.errors import RecipeError
from diptych.runtime.extras import requires_extra
from diptych.runtime.files import as_text
from diptych_mine.fetch.hosts import Host, Robots, RobotsCache, tdm_rules
from diptych_mine.fetch.safety import AddressGuard, PrivateAddress, Resolver, numeric, parse_resolve
from diptych_mine.pages import addresses
from diptych_mine.pages.bodies import decoder
from diptych_mine.pages.charsets import content_type
from diptych_mine.pages.pages import forbids
from diptych_mine.settings import Fetch

ROBOTS_BYTES = 512_000
LOOPBACK = ("127.", "[::1]", "localhost")
OPT_OUTS: Mapping[str, Callable[[str], str]] = {"/.well-known/tdmrep.json": tdm_rules, "/ai.txt": str}
_OF_THE_HOST = ("private address", "name not resolved")  # failures that concern all URLs of a host
# Temporary failures. A run retries them, and --retry-failed retries them once more.
PASSING = frozenset({
    "timeout", "reset", "server error", "too many requests", "name not resolved", "host left", "refused",
    "robots unreachable",
})  # fmt: skip


@dataclass(frozen=True)
class WantedAddress:
    """A URL, and the number of redirects that led to it."""

    address: str
    hops: int = 0


@dataclass
class FetchedBody:
    """The HTTP response for a URL, or the reason why there is none.

    `reason`: why there is no body. `moved`: the target of a redirect to another host, which another worker may have to
    fetch.
    """

    address: str
    reason: str = ""
    status: int = 0
    final: str = ""
    moved: str = ""
    hops: int = 0
    body: bytes = b""
    media: str = ""  # media type, with `; charset=NAME` if the header names a charset
    at: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()


class _Refused(Exception):
    def __init__(self, reason: str, status: int = 0) -> None:
        self.reason, self.status = reason, status
        super().__init__(reason)


def agent(settings: Fetch) -> str:
    """Return the User-Agent of all requests."""
    contact = f" (+{settings.contact})" if settings.contact else ""
    return f"{settings.agent}/{version('diptych')}{contact}"


def check_contact(settings: Fetch, hosts: Iterable[str]) -> None:
    """Raise RecipeError if no contact is set, unless all hosts are on this machine."""
    places = parse_resolve(settings.resolve)
    for host in hosts:
        name = host.partition(":")[0]
        place = next((place for pattern, place, _ in places if fnmatch.fnmatchcase(name, pattern)), host)
        if not settings.contact and not place.startswith(LOOPBACK):
            way_out = "pass --contact with your web page or e-mail address, or pass --offline"
            raise RecipeError(f"fetching images of {host} needs a contact: {way_out}")


class Fetcher:
    """The HTTP client of one worker. An asynchronous context manager."""

    def __init__(self, settings: Fetch, robots: Path) -> None:
        self.settings = settings
        self.cache = RobotsCache(robots, settings.robots_hours, settings.agent)
        self.hosts: dict[str, Host] = {}
        self.gate = asyncio.Semaphore(settings.at_once)
        self.guard = AddressGuard(settings.allow)

    async def __aenter__(self) -> Fetcher:
        with requires_extra("diptych mine", "mine"):
            import aiohttp
        settings = self.settings
        self._client = aiohttp
        resolver: Any = Resolver(parse_resolve(settings.resolve), aiohttp.ThreadedResolver())
        connector = aiohttp.TCPConnector(
            limit=settings.at_once, resolver=resolver, use_dns_cache=False, socket_factory=self.guard,
            enable_cleanup_closed=False,
        )  # fmt: skip
        tracing = aiohttp.TraceConfig()

        async def sending(_session: Any, context: Any, _request: Any) -> None:
            await context.trace_request_ctx.sending()

        tracing.on_request_headers_sent.append(sending)  # aiohttp awaits `sending` just before each request
        self.session = aiohttp.ClientSession(
            connector=connector, trace_configs=[tracing], cookie_jar=aiohttp.DummyCookieJar(), trust_env=False,
            auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None),
            headers={"User-Agent": agent(settings), "Accept-Encoding": "gzip, deflate, br"},
        )  # fmt: skip
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.session.close()

    async def all(self, wanted: Iterable[WantedAddress], keep: Callable[[FetchedBody], None]) -> list[FetchedBody]:
        """Fetch all URLs, with one queue per host.

        `keep` is called with each response when it arrives. Returns the responses in the order of `wanted`, without
        bodies.
        """
        queues: dict[str, deque[tuple[int, WantedAddress]]] = {}
        answers: dict[int, FetchedBody] = {}
        for number, one in enumerate(wanted):
            queues.setdefault(addresses.host_of(one.address), deque()).append((number, one))

        async def work(queue: deque[tuple[int, WantedAddress]]) -> None:
            while queue:
                number, one = queue.popleft()
                answer = await self.one(one)
                keep(answer)
                answers[number] = replace(answer, body=b"")

        workers = self.settings.connections_per_host
        await asyncio.gather(*(work(queue) for queue in queues.values() for _ in range(workers)))
        return [answers[number] for number in sorted(answers)]

    async def one(self, wanted: WantedAddress) -> FetchedBody:
        """Fetch one URL. Temporary failures are retried."""
        answer = FetchedBody(wanted.address, self._refusal(wanted.address), hops=wanted.hops)
        if answer.reason:
            return answer
        host = self._host(wanted.address)
        for attempt in range(self.settings.retries + 1):
            if host.left:
                return FetchedBody(wanted.address, host.left, hops=wanted.hops)
            try:
                answer = await self._followed(wanted)
            except _Refused as error:
                answer = FetchedBody(wanted.address, error.reason, error.status, hops=wanted.hops)
            answer.at = time.time()
            passing = answer.reason in PASSING
            host.ended(not passing, self.settings)
            if not passing or answer.reason == "robots unreachable":
                return answer
            if attempt < self.settings.retries:
                await asyncio.sleep(self.settings.backoff * 2**attempt)
        return answer

    async def _followed(self, wanted: WantedAddress) -> FetchedBody:
        """Fetch a URL and follow its redirects within the host. A redirect to another host is returned in `moved`."""
        address, hops = wanted.address, wanted.hops
        seen = {address}
        while True:
            answer = await self._answer(address)
            if answer.moved:
                hops += 1
                if hops > self.settings.redirects:
                    raise _Refused("too many redirects")
                if answer.moved in seen:
                    raise _Refused("the redirects form a loop")
                if why := self._refusal(answer.moved):
                    raise _Refused(why)
                seen.add(answer.moved)
                if addresses.host_of(answer.moved) == addresses.host_of(address):
                    address = answer.moved
                    continue
            answer.address, answer.final, answer.hops = wanted.address, address, hops
            return answer

    async def _answer(self, address: str) -> FetchedBody:
        """Send one request, if robots.txt allows it."""
        host, settings = self._host(address), self.settings
        robots = await self._robots(address, host)
        if not robots.allows(address):
            raise _Refused(robots.why or "robots")
        if robots.reserves(address):
            raise _Refused("opt-out")
        if robots.delay > settings.crawl_delay:
            raise _Refused("crawl delay")
        async with host.turn(self.gate):
            return await self._request(address, host, settings.most_bytes)

    async def _request(self, address: str, host: Host, most: int, robots: bool = False) -> FetchedBody:
        settings = self.settings
        try:
            async with asyncio.timeout(settings.whole):
                async with asyncio.timeout(settings.first_byte) as first:
                    response = await self.session.get(address, allow_redirects=False, trace_request_ctx=host)
                    first.reschedule(None)
                try:
                    return await self._read(address, response, host, most, robots)
                finally:
                    response.close() if not response.content.at_eof() else response.release()
        except TimeoutError as error:
            raise _Refused("timeout") from error
        except (self._client.ClientError, OSError, ValueError) as error:
            raise _Refused(_reason(error, self._client)) from error

    async def _read(self, address: str, response: Any, host: Host, most: int, robots: bool) -> FetchedBody:
        headers = tuple((name, value) for name, value in response.headers.items())
        status = response.status
        host.observe(status, response.headers.get("Retry-After"), self.settings)
        answer = FetchedBody(address, status=status, headers=headers)
        if status in (301, 302, 303, 307, 308):
            location = response.headers.get("Location")
            if not location:
                raise _Refused("redirect without an address", status)
            answer.moved = addresses.absolute(address, location)
            return answer
        if status != 200:
            server = "server error" if status >= 500 else f"status {status}"
            raise _Refused("too many requests" if status == 429 else server, status)
        if not robots and forbids(headers):
            raise _Refused("opt-out", status)
        media, charset = content_type(response.headers.get("Content-Type") or "")
        answer.media = f"{media}; charset={charset}" if charset else media
        answer.body = await _bounded(response, most, cut=robots)
        return answer

    def _host(self, address: str) -> Host:
        name = addresses.host_of(address)
        if name not in self.hosts:
            self.hosts[name] = Host(name, 1 / self.settings.rate)
        return self.hosts[name]

    async def _robots(self, address: str, host: Host) -> Robots:
        """Return the robots.txt rules of the URL's origin.

        They are fetched once; concurrent calls wait for that request.
        """
        parts = urlsplit(address)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in host.robots:
            host.robots[origin] = asyncio.ensure_future(self._robots_of(origin, host))
        return await host.robots[origin]

    async def _robots_of(self, origin: str, host: Host) -> Robots:
        robots = self.cache.get(origin)
        if robots is None:
            try:
                text = await self._site_text(f"{origin}/robots.txt")
                robots, optouts = Robots(text, self.settings.agent), list[str]()
                for path, read in OPT_OUTS.items():
                    if robots.allows(origin + path):
                        optouts.append(read(await self._site_text(origin + path)))
                robots = self.cache.put(origin, text, optouts)
            except _Refused as error:  # a failure is not cached, because it may be temporary
                why = error.reason if error.reason in _OF_THE_HOST else "robots unreachable"
                robots = Robots(None, self.settings.agent, why)
        host.slower(min(robots.delay, self.settings.crawl_delay))
        return robots

    async def _site_text(self, address: str) -> str:
        """Return the text of robots.txt or of a file of opt-outs, after up to five redirects.

        For a status 4xx the text is empty, which allows everything (RFC 9309). Raises _Refused for a status 5xx, or if
        there is no response. Then nothing may be fetched from this origin.
        """
        for _ in range(self.settings.redirects + 1):
            host = self._host(address)
            try:
                async with host.turn(self.gate):
                    answer = await self._request(address, host, ROBOTS_BYTES, robots=True)
            except _Refused as error:
                if 400 <= error.status < 500 and error.status != 429:
                    return ""
                raise
            if not answer.moved:
                return as_text(answer.body, "replace")
            if why := self._refusal(answer.moved):
                raise _Refused(why)
            address = answer.moved
        return ""

    def _refusal(self, address: str) -> str:
        """Return why a URL must not be requested, else "".

        `AddressGuard` checks the host again when a socket is made.
        """
        if not addresses.usable(address):
            return "unusable address"
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        number = numeric(parts.hostname or "")
        if number is not None and not self.guard.lets(number):
            return "private address"
        return "" if port in self.settings.ports else "unusable address"


def _reason(error: Exception, client: Any) -> str:
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, PrivateAddress) or "private address" in str(inner):
            return "private address"
        inner = inner.__cause__ or inner.__context__
    reasons: tuple[tuple[Any, str], ...] = (
        (client.ClientConnectorDNSError, "name not resolved"), (client.ClientConnectorCertificateError, "certificate"),
        (client.ClientSSLError, "certificate"), (client.ClientConnectorError, "refused"),
        (client.ClientPayloadError, "reset"), ((client.InvalidURL, ValueError), "unusable address"),
        (client.ClientResponseError, "not HTTP"),
    )  # fmt: skip
    return next((reason for kind, reason in reasons if isinstance(error, kind)), "reset")


async def _bounded(response: Any, most: int, cut: bool = False) -> bytes:
    """Return the decoded body of at most `most` bytes.

    Raises _Refused for a longer body, or cuts it off if `cut` is True. The limit also applies to the bytes as received,
    before they are decoded.
    """
    received, body = 0, bytearray()
    try:
        decode, fault = decoder((response.headers.get("Content-Encoding") or "identity").strip().lower())
    except LookupError as error:
        raise _Refused("bad encoding", 200) from error
    async for chunk in response.content.iter_any():
        received += len(chunk)
        try:
            body += decode(chunk, most + 1 - len(body))
        except fault as error:
            raise _Refused("bad encoding", 200) from error
        if received > most or len(body) > most:
            if cut:
                return bytes(body[:most])
            raise _Refused("too large", response.status)
    if (length := response.content_length) is not None and received < length:
        raise _Refused("reset", response.status)
    return bytes(body)
