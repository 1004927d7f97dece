"""What is not wanted: hosts, addresses, and pictures by their hashes; as others list it, or as it was forgotten."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from diptych.mining.pages import addresses
from diptych.runtime.errors import RecipeError
from diptych.runtime.files import text_of


@dataclass(frozen=True)
class Lists:
    """`near` is within how many bits a difference hash is the same picture's."""

    hosts: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    sha256: frozenset[str] = frozenset()
    dhashes: tuple[int, ...] = ()
    excluded_sha256: frozenset[str] = frozenset()
    excluded_dhashes: tuple[int, ...] = ()
    near: int = field(default=4)

    def refuse(self, address: str) -> bool:
        """Of a picture or a page; a host on the list stands for those below it."""
        if address in self.addresses:
            return True
        if not self.hosts:
            return False
        host = addresses.host_of(address).partition(":")[0]
        parts = host.split(".")
        return any(".".join(parts[start:]) in self.hosts for start in range(len(parts)))

    def refuse_any(self, *addresses: str | None) -> bool:
        return any(map(self.refuse, filter(None, addresses)))

    def refuse_picture(self, sha256: str, dhash: int | None) -> bool:
        return sha256 in self.sha256 or _near(dhash, self.dhashes, self.near)

    def exclude_picture(self, sha256: str, dhash: int | None) -> bool:
        return sha256 in self.excluded_sha256 or _near(dhash, self.excluded_dhashes, self.near)


def _near(dhash: int | None, others: tuple[int, ...], bits: int) -> bool:
    if dhash is None or not others:
        return False
    apart = np.bitwise_count(np.array(others, np.uint64) ^ np.uint64(dhash))
    return bool((apart <= bits).any())


def read_lines(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Lines by what they are: 64 hex digits a sha256, 16 a dHash, an address, else a host. # begins a comment."""
    found: dict[str, list[str]] = {"sha256": [], "dhash": [], "addresses": [], "hosts": []}
    for path in paths:
        try:
            lines = text_of(path).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(
                f"{path} is no readable list ({error}); wanted a sha256, dHash, address or host a line"
            ) from error
        for line in lines:
            entry = line.partition("#")[0].strip() if not line.strip().lower().startswith("http") else line.strip()
            if entry:
                found[_kind(entry, path)].append(entry if _kind(entry, path) == "addresses" else entry.lower())
    return found


def _kind(entry: str, path: Path) -> str:
    if inputs_address(entry):
        return "addresses"
    hexadecimal = all(one in "0123456789abcdef" for one in entry.lower())
    if hexadecimal and len(entry) in (16, 64):
        return "dhash" if len(entry) == 16 else "sha256"
    if " " in entry or "/" in entry:
        raise RecipeError(
            f"{path}: found {entry[:80]!r}, wanted a sha256, a dHash (16 hex digits), an address or a host a line"
        )
    return "hosts"


def inputs_address(entry: str) -> bool:
    return entry.lower().startswith(("http://", "https://"))


def lists_of(refuse: Iterable[Path], near: int | None, excluded: Iterable[tuple[str, int | None]] = ()) -> Lists:
    entries = read_lines(refuse)
    kept = list(excluded)
    return Lists(
        frozenset(entries["hosts"]), frozenset(entries["addresses"]), frozenset(entries["sha256"]),
        tuple(int(one, 16) for one in entries["dhash"]), frozenset(one for one, _ in kept),
        tuple(one for _, one in kept if one is not None), near if near is not None else -1,
    )  # fmt: skip
