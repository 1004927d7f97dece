"""No connection to what is not public: checked when a socket is made, for each hop, however it is spelt or named."""

import fnmatch
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

from diptych.runtime.errors import RecipeError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Which Python calls global: site-local (RFC 3879), a network's own NAT64 (8215), IPv4-translated (7915), SRv6 (9602).
NOT_PUBLIC = tuple(map(ipaddress.IPv6Network, ("fec0::/10", "64:ff9b:1::/48", "::ffff:0:0:0/96", "5f00::/16")))


class PrivateAddress(OSError):
    """Private, loopback, link-local, shared (CGNAT) or otherwise not global."""


class AddressGuard:
    """A socket factory that refuses what is not global, but for the networks that are allowed."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        try:
            self.allow: tuple[Network, ...] = tuple(ipaddress.ip_network(one) for one in allow)
        except ValueError as error:
            raise RecipeError(f"--allow: {error}; wanted networks such as 127.0.0.0/8") from error

    def __call__(self, where: Any) -> socket.socket:
        family, kind, protocol, _, target = where
        if not self.lets(str(target[0])):
            raise PrivateAddress(f"private address {target[0]}")
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    def lets(self, address: str) -> bool:
        found = _inner(ipaddress.ip_address(address.partition("%")[0]))
        return _is_public(found) or any(found in network for network in self.allow)


def _is_public(found: Address) -> bool:
    return found.is_global and not found.is_multicast and not any(found in network for network in NOT_PUBLIC)


def _inner(found: Address) -> Address:
    """The IPv4 address that an IPv6 one wraps."""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return found.ipv4_mapped
        if found.sixtofour is not None:
            return found.sixtofour
        if found.teredo is not None:
            return found.teredo[1]
        if found in NAT64:
            return ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if int(found) >> 32 == 0 and int(found) > 1:  # the old "compatible" form, ::a.b.c.d
            return ipaddress.IPv4Address(int(found))
    return found


def numeric(host: str) -> str | None:
    """The address that a host of figures alone means, 0x7f000001 and 2130706433 too; None for a name."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host)) if host and " " not in host else None
    except OSError:
        return None


def parse_resolve(resolve: Sequence[str]) -> list[tuple[str, str, int | None]]:
    """`*.test=127.0.0.1:8080`, as given to --resolve: pattern of names, address, port."""
    found = []
    for one in resolve:
        pattern, equals, place = one.partition("=")
        address, colon, port = place.rpartition(":") if place.count(":") == 1 else (place, "", "")
        try:
            ipaddress.ip_address(address)
            found.append((pattern.lower(), address, int(port) if colon else None))
        except ValueError as error:
            raise RecipeError(f"--resolve {one}: wanted NAME=ADDRESS or NAME=ADDRESS:PORT") from error
        if not equals or not pattern:
            raise RecipeError(f"--resolve {one}: wanted NAME=ADDRESS or NAME=ADDRESS:PORT")
    return found


class Resolver:
    """The system's, but for names whose place is told. aiohttp's resolver protocol."""

    def __init__(self, places: list[tuple[str, str, int | None]], otherwise: Any) -> None:
        self.places, self.otherwise = places, otherwise

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[Any]:
        for pattern, address, answer in self.places:
            if fnmatch.fnmatchcase(host.lower(), pattern):
                kind = socket.AF_INET6 if ":" in address else socket.AF_INET
                return [{"hostname": host, "host": address, "port": answer or port, "family": kind, "proto": 0,
                         "flags": socket.AI_NUMERICHOST}]  # fmt: skip
        found: list[Any] = await self.otherwise.resolve(host, port, family)
        return found

    async def close(self) -> None:
        await self.otherwise.close()
