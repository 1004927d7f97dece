"""Allow connections only to public IP addresses.

An address is checked after the DNS lookup, when a socket is made. This includes the sockets of redirects.
"""

import fnmatch
import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from diptych.runtime.errors import RecipeError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Networks that are not public, although Python's `is_global` is True for them: site-local (RFC 3879), local NAT64
# (RFC 8215), IPv4-translated (RFC 7915) and SRv6 (RFC 9602).
NOT_PUBLIC = tuple(map(ipaddress.IPv6Network, ("fec0::/10", "64:ff9b:1::/48", "::ffff:0:0:0/96", "5f00::/16")))


class PrivateAddress(OSError):
    """Raised for an IP address that is private, loopback, link-local, shared (CGNAT) or otherwise not public."""


class AddressGuard:
    """A socket factory that raises PrivateAddress for addresses that are neither public nor in an allowed network."""

    def __init__(self, allow: Sequence[str] = ()) -> None:
        try:
            self.allow: tuple[Network, ...] = tuple(ipaddress.ip_network(one) for one in allow)
        except ValueError as error:
            raise RecipeError(f"--allow: {error}; expected a network, such as 127.0.0.0/8") from error

    def __call__(self, where: Any) -> socket.socket:
        family, kind, protocol, _, target = where
        if not self.lets(str(target[0])):
            raise PrivateAddress(f"private address {target[0]}")
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    def lets(self, address: str) -> bool:
        inner = _inner(ipaddress.ip_address(address.partition("%")[0]))
        return _is_public(inner) or any(inner in network for network in self.allow)


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not any(address in network for network in NOT_PUBLIC)


def _inner(address: Address) -> Address:
    """Return the IPv4 address that is embedded in an IPv6 address, else the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address.teredo is not None:
            return address.teredo[1]
        if address in NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if int(address) >> 32 == 0 and int(address) > 1:  # an IPv4-compatible address, the obsolete form ::a.b.c.d
            return ipaddress.IPv4Address(int(address))
    return address


def numeric(host: str) -> str | None:
    """Return the IP address of a numeric host, such as 127.0.0.1, 0x7f000001 or 2130706433; None for a name."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(host.partition("%")[0]))
    with suppress(OSError):
        return socket.inet_ntoa(socket.inet_aton(host)) if host and " " not in host else None
    return None


def parse_resolve(resolve: Sequence[str]) -> list[tuple[str, str, int | None]]:
    """Return (name pattern, address, port) of each option --resolve, such as `*.test=127.0.0.1:8080`.

    Raises RecipeError.
    """
    places = []
    for one in resolve:
        pattern, _, place = one.partition("=")
        address, colon, port = place.rpartition(":") if place.count(":") == 1 else (place, "", "")
        try:
            ipaddress.ip_address(address if pattern else "")
            places.append((pattern.lower(), address, int(port) if colon else None))
        except ValueError as error:
            raise RecipeError(f"--resolve {one}: expected NAME=ADDRESS or NAME=ADDRESS:PORT") from error
    return places


class Resolver:
    """A DNS resolver for aiohttp. Hosts that match a pattern get the pattern's address; `otherwise` resolves others."""

    def __init__(self, places: list[tuple[str, str, int | None]], otherwise: Any) -> None:
        self.places, self.otherwise = places, otherwise

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[Any]:
        for pattern, address, own_port in self.places:
            if fnmatch.fnmatchcase(host.lower(), pattern):
                kind = socket.AF_INET6 if ":" in address else socket.AF_INET
                return [{"hostname": host, "host": address, "port": own_port or port, "family": kind, "proto": 0,
                         "flags": socket.AI_NUMERICHOST}]  # fmt: skip
        resolved: list[Any] = await self.otherwise.resolve(host, port, family)
        return resolved

    async def close(self) -> None:
        await self.otherwise.close()
