"""Fetch politely and safely: robots.txt, rates, opt-outs, limits of time and bytes; no cookies, no proxies."""

from __future__ import annotations

import asyncio
import fnmatch
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from diptych.mining.fetch.hosts import Host, Robots, RobotsCache
from diptych.mining.fetch.safety import AddressGuard, PrivateAddress, Resolver, numeric, parse_resolve
from diptych.mining.pages import addresses
from diptych.mining.pages.pages import forbids
from diptych.mining.settings import Fetch
from diptych.runtime.errors import RecipeError
from diptych.runtime.extras import requires_extra

ROBOTS_BYTES = 512_000
_TOLD_AS_IT_IS = ("private address", "name not resolved")  # though it was robots.txt that was asked for
LOOPBACK = ("127.", "[::1]", "localhost")
# What may pass: tried again within a run, and by --retry-failed.
PASSING = frozenset(
    [
        "timeout",
        "reset",
        "server error",
        "too many requests",
        "name not resolved",
        "host left",
        "refused",
        "robots unreachable",
    ]
)


@dataclass(frozen=True)
class WantedAddress:
    """An address, and how many redirects led to it."""

    address: str
    hops: int = 0


@dataclass
class FetchedBody:
    """`reason` is empty where `body` is what was asked for; `moved` leads to a host that another worker may have."""

    address: str
    reason: str = ""
    status: int = 0
    final: str = ""
    moved: str = ""
    hops: int = 0
    body: bytes = b""
    media: str = ""
    at: float = 0.0
    headers: tuple[tuple[str, str], ...] = ()


class _Refused(Exception):
    def __init__(self, reason: str, status: int = 0) -> None:
        self.reason, self.status = reason, status
        super().__init__(reason)


def agent(settings: Fetch) -> str:
    contact = f" (+{settings.contact})" if settings.contact else ""
    return f"{settings.agent}/{version('diptych')}{contact}"


def check_contact(settings: Fetch, hosts: Iterable[str]) -> None:
    """Raises RecipeError where the web would be asked by someone who cannot be reached."""
    places = parse_resolve(settings.resolve)
    for host in hosts:
        outside = next(
            (place for pattern, place, _ in places if fnmatch.fnmatchcase(host.partition(":")[0], pattern)), host
        )
        if not settings.contact and not outside.startswith(LOOPBACK):
            raise RecipeError(
                f"pictures of {host} would be fetched by nobody in particular; wanted --contact with a page or an "
                "address by which you can be reached, or --offline"
            )


class Fetcher:
    """For the hosts of one worker. Use as an asynchronous context manager."""

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
        self.session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False,
            headers={"User-Agent": agent(settings), "Accept-Encoding": "gzip, deflate, br"},
            timeout=aiohttp.ClientTimeout(total=None),
        )  # fmt: skip
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.session.close()

    async def all(self, wanted: Iterable[WantedAddress], keep: Callable[[FetchedBody], None]) -> list[FetchedBody]:
        """An answer each, in the order of what is wanted; `keep` has had its body. No host waits for another."""
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

        await asyncio.gather(
            *(work(queue) for queue in queues.values() for _ in range(self.settings.connections_per_host))
        )
        return [answers[number] for number in sorted(answers)]

    async def one(self, wanted: WantedAddress) -> FetchedBody:
        """With retries for what may pass."""
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
        """Redirects within the host are followed; one to another host is told, for the worker that has that host."""
        address, hops = wanted.address, wanted.hops
        seen = {address}
        while True:
            answer = await self._asked(address)
            if answer.moved:
                hops += 1
                if hops > self.settings.redirects:
                    raise _Refused("too many redirects")
                if answer.moved in seen:
                    raise _Refused("redirects in a circle")
                if why := self._refusal(answer.moved):
                    raise _Refused(why)
                seen.add(answer.moved)
                if addresses.host_of(answer.moved) == addresses.host_of(address):
                    address = answer.moved
                    continue
            answer.address, answer.final, answer.hops = wanted.address, address, hops
            return answer

    async def _asked(self, address: str) -> FetchedBody:
        """One request of one address."""
        host, settings = self._host(address), self.settings
        robots = await self._robots(address, host)
        if not robots.allows(address):
            raise _Refused(robots.why or "robots")
        if robots.delay > settings.crawl_delay:
            raise _Refused("crawl delay")
        async with host.turn(self.gate):
            return await self._request(address, host, settings.most_bytes)

    async def _request(self, address: str, host: Host, most: int, robots: bool = False) -> FetchedBody:
        settings = self.settings
        try:
            async with asyncio.timeout(settings.whole):
                async with asyncio.timeout(settings.first_byte) as first:
                    response = await self.session.get(address, allow_redirects=False)
                    first.reschedule(None)
                try:
                    return await self._read(address, response, host, most, robots)
                finally:
                    response.close() if not response.content.at_eof() else response.release()
        except TimeoutError as error:
            raise _Refused("timeout") from error
        except (self._client.ClientError, OSError, ValueError) as error:
            raise _Refused(_told(error, self._client)) from error

    async def _read(self, address: str, response: Any, host: Host, most: int, robots: bool) -> FetchedBody:
        headers = tuple((name, value) for name, value in response.headers.items())
        status = response.status
        host.observe(status, response.headers.get("Retry-After"), self.settings)
        answer = FetchedBody(address, status=status, headers=headers)
        if status in (301, 302, 303, 307, 308):
            location = response.headers.get("Location")
            if not location:
                raise _Refused("redirect to nowhere", status)
            answer.moved = addresses.absolute(address, location)
            return answer
        if status != 200:
            raise _Refused(_of_status(status), status)
        if not robots and forbids(headers):
            raise _Refused("opt-out", status)
        answer.media = (response.headers.get("Content-Type") or "").split(";")[0].strip().lower()
        answer.body = await _bounded(response, most, cut=robots)
        return answer

    def _host(self, address: str) -> Host:
        name = addresses.host_of(address)
        if name not in self.hosts:
            self.hosts[name] = Host(name, 1 / self.settings.rate)
        return self.hosts[name]

    async def _robots(self, address: str, host: Host) -> Robots:
        """Fetched once for a host, by the first who wants it; the others wait for it."""
        parts = urlsplit(address)
        origin = f"{parts.scheme}://{parts.netloc}"
        if host.robots is None:
            host.robots = {}
        if origin not in host.robots:
            host.robots[origin] = asyncio.ensure_future(self._robots_of(origin, host))
        found: Robots = await host.robots[origin]
        return found

    async def _robots_of(self, origin: str, host: Host) -> Robots:
        found = self.cache.get(origin)
        if found is None:
            try:
                found = self.cache.put(origin, await self._robots_text(origin))
            except _Refused as error:  # not kept: it may be there tomorrow
                why = error.reason if error.reason in _TOLD_AS_IT_IS else "robots unreachable"
                found = Robots(None, self.settings.agent, why)
        host.every = max(host.every, min(found.delay, self.settings.crawl_delay))
        return found

    async def _robots_text(self, origin: str) -> str:
        """RFC 9309: a 4xx allows everything, a 5xx or no answer (raised) nothing; five redirects are followed."""
        address = f"{origin}/robots.txt"
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
                return answer.body.decode("utf-8", "replace")
            if why := self._refusal(answer.moved):
                raise _Refused(why)
            address = answer.moved
        return ""

    def _refusal(self, address: str) -> str:
        """Why it is not asked for at all; empty where it may be. The guard of sockets looks at it again."""
        if not addresses.usable(address):
            return "unusable address"
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        number = numeric(parts.hostname or "")
        if number is not None and not self.guard.lets(number):
            return "private address"
        return "" if port in self.settings.ports else "unusable address"


def _of_status(status: int) -> str:
    if status == 429:
        return "too many requests"
    return "server error" if status >= 500 else f"status {status}"


def _told(error: Exception, client: Any) -> str:  # noqa: PLR0911  # a reason a line
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, PrivateAddress) or "private address" in str(inner):
            return "private address"
        inner = inner.__cause__ or inner.__context__
    if isinstance(error, client.ClientConnectorDNSError):
        return "name not resolved"
    if isinstance(error, client.ClientConnectorCertificateError | client.ClientSSLError):
        return "certificate"
    if isinstance(error, client.ClientConnectorError):
        return "refused"
    if isinstance(error, client.InvalidURL | ValueError) and not isinstance(error, client.ClientPayloadError):
        return "unusable address"
    if isinstance(error, client.ClientResponseError):
        return "not HTTP"
    return "reset"


async def _bounded(response: Any, most: int, cut: bool = False) -> bytes:
    """The decoded body. Reading stops at the first byte over the bound, as received and as decoded."""
    received, kept = 0, bytearray()
    decode = _decoder((response.headers.get("Content-Encoding") or "identity").strip().lower())
    async for chunk in response.content.iter_any():
        received += len(chunk)
        kept += decode(chunk, most + 1 - len(kept))
        if received > most or len(kept) > most:
            if cut:
                return bytes(kept[:most])
            raise _Refused("too large", response.status)
    if (length := response.content_length) is not None and received < length:
        raise _Refused("reset", response.status)
    return bytes(kept)


def _decoder(name: str) -> Any:
    """A function of bytes and of how many it may make of them."""
    if name in ("", "identity"):
        return lambda chunk, most: chunk[:most]
    if name in ("gzip", "x-gzip", "deflate"):
        reader: list[Any] = [] if name == "deflate" else [zlib.decompressobj(31)]

        def inflate(chunk: bytes, most: int) -> bytes:
            if not reader:  # with zlib's header, as the RFC has it, or without, as some send it
                reader.append(zlib.decompressobj(15 if chunk[:1] and chunk[0] & 15 == 8 else -15))
            try:
                return bytes(reader[0].decompress(chunk, max(1, most)))
            except zlib.error as error:
                raise _Refused("bad encoding", 200) from error

        return inflate
    if name == "br":
        import brotli

        unpacker = brotli.Decompressor()

        def unpack(chunk: bytes, most: int) -> bytes:
            try:
                made = bytearray(unpacker.process(chunk, output_buffer_limit=max(1, most)))
                while not unpacker.can_accept_more_data() and len(made) < most:
                    made += unpacker.process(b"", output_buffer_limit=max(1, most - len(made)))
                return bytes(made)
            except brotli.error as error:
                raise _Refused("bad encoding", 200) from error

        return unpack
    raise _Refused("bad encoding", 200)
