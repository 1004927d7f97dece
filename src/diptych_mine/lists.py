"""Lists of unwanted hosts, URLs and hashes of images, written by users or by `diptych mine forget`."""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import numpy as np

from diptych.runtime.errors import RecipeError, explained
from diptych.runtime.files import text_of
from diptych.vision.fingerprints import NEAR, matrix, near_pairs
from diptych_mine.pages import addresses
from diptych_mine.pages.inputs import ADDRESS
from diptych_mine.tables import Row

WANTED = "expected in each line a SHA-256, a perceptual hash (`phash:` and 64 hex digits), a URL or a host"
HASH = re.compile(r"(phash:)?[0-9a-f]{64}|[0-9a-f]{16}")
HOST = re.compile(r"(?:\*?\.)?([^\s/:*@]+?)\.?(?::\d+)?")


@dataclass(frozen=True)
class Hashes:
    """A set of images, by their hashes.

    An image is in the set if the set has its SHA-256, or a perceptual hash that differs from the image's in at most
    `near` bits.
    """

    sha256: frozenset[str] = frozenset()
    phashes: frozenset[bytes] = frozenset()
    near: int = NEAR

    def hold(self, images: Sequence[Row | None]) -> list[bool]:
        """Return for each image, a row with `sha256` and `phash`, whether it is in the set. None is in no set."""
        held = [image is not None and image["sha256"] in self.sha256 for image in images]
        hashed = [place for place, image in enumerate(images) if image is not None and image["phash"] is not None]
        tested = matrix(one["phash"] for place in hashed if (one := images[place]) is not None)
        for near in np.unique(near_pairs(tested, matrix(self.phashes), self.near)[0]):
            held[hashed[near]] = True
        return held


@dataclass(frozen=True)
class Lists:
    """All lists of a run. `refused`: unwanted images. `excluded`: images of val and test splits."""

    hosts: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    refused: Hashes = Hashes()
    excluded: Hashes = Hashes()

    def refuse(self, *places: str | None) -> bool:
        """Return True if one of these URLs, or its host, is listed. A listed host includes its subdomains."""
        return any(place and (self._refuse_address(place) or self._refuse_host(place)) for place in places)

    def _refuse_address(self, place: str) -> bool:
        return bool(self.addresses) and (place in self.addresses or _plain(place) in self.addresses)

    def _refuse_host(self, place: str) -> bool:
        parts = addresses.host_of(place).partition(":")[0].split(".") if self.hosts else []
        return any(".".join(parts[start:]) in self.hosts for start in range(len(parts)))


def read_entries(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Return kind -> entries of the lists.

    Kinds are `sha256` (64 hex digits), `phash` (64 hex digits after `phash:`), `addresses` (URLs) and `hosts`. A line
    that begins with # is a comment.
    """
    entries: dict[str, list[str]] = {"sha256": [], "phash": [], "addresses": [], "hosts": []}
    for path in paths:
        with explained(RecipeError, f"{path} is not a readable list", WANTED):
            lines = text_of(path).splitlines()
        for line in map(str.strip, lines):
            if ADDRESS.match(line):
                entries["addresses"].append(_plain(line))
            elif entry := line.partition("#")[0].strip().lower():
                kind, entry = _kind(entry, path)
                entries[kind].append(entry)
    return entries


def _kind(entry: str, path: Path) -> tuple[str, str]:
    """Return the kind of an entry, and the entry; a host without its port and without `*.`, in ASCII."""
    if (known := HASH.fullmatch(entry)) is not None:
        if len(entry) == 16:
            raise RecipeError(f"{path}: found {entry}, a hash of an older version; {WANTED}")
        return "phash" if known[1] else "sha256", entry.removeprefix("phash:")
    with suppress(UnicodeError):
        if (host := HOST.fullmatch(entry)) is not None:
            return "hosts", host[1].encode("idna").decode()
    raise RecipeError(f"{path}: found {entry[:80]!r}, {WANTED}")


def _plain(address: str) -> str:
    """Return a URL with its scheme and host in lower case, and without its fragment and the usual port."""
    try:
        parts = urlsplit(address)
        host = addresses.host_of(address).removesuffix({"http": ":80", "https": ":443"}.get(parts.scheme, ":"))
        return urlunsplit(parts._replace(netloc=host, fragment="")) if host else address
    except ValueError:
        return address


def lists_of(refuse: Iterable[Path], near: int | None, excluded: Iterable[tuple[str, bytes | None]] = ()) -> Lists:
    """Read the list files in `refuse`, and return the lists of a run.

    `excluded`: SHA-256 and perceptual hash of images to exclude. `near`: the number of bits in which the perceptual
    hashes of the same image may differ. None: only equal files are the same image.
    """
    entries, held_out, bits = read_entries(refuse), list(excluded), -1 if near is None else near
    return Lists(
        frozenset(entries["hosts"]), frozenset(entries["addresses"]),
        Hashes(frozenset(entries["sha256"]), frozenset(map(bytes.fromhex, entries["phash"])), bits),
        Hashes(frozenset(one for one, _ in held_out), frozenset(one for _, one in held_out if one is not None), bits),
    )  # fmt: skip
