"""Limits for each host: its request rate, pauses after errors, and its robots.txt."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from asyncio import Future
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from diptych.runtime.extras import requires_extra
from diptych.runtime.files import parse_json, text_of, write_atomically
from diptych_mine.pages.pages import usage_of
from diptych_mine.settings import Fetch

THRICE = 3
# A line of a robots.txt: its field and its value. Misspellings of Disallow count, and bytes before the field do not.
_FIELD = r"user[-\s]*agent|d[ais]+ll?[ao]w|allow|crawl[-\s]delay|content-(?:signal|usage)"
_LINE = re.compile(rf"[^!-~]*+({_FIELD})(?![\w-])\s*+:?\s*+(.*)", re.I)
_TOKEN = re.compile(r"\*?([a-z_-]+)|\*", re.I)
_DAMAGE = re.compile("[\0-\x1f\x7f\x85\u2028\u2029\ufffd]")  # in a path: replaced bytes, and controls


@dataclass
class Host:
    """The state of one host. Only one worker fetches from a host."""

    name: str
    every: float  # minimum number of seconds between two requests
    next_at: float = 0.0
    sent_at: float = 0.0  # time of the last request
    complaints: int = 0  # consecutive responses with status 429 or 5xx
    failures: int = 0  # consecutive failures of any kind
    left: str = ""  # why requests to this host ended; empty while they continue
    robots: dict[str, Future[Robots]] = field(default_factory=dict)  # origin -> its robots.txt
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def turn(self, gate: asyncio.Semaphore) -> AsyncIterator[None]:
        """Wait until `every` seconds after the last request.

        Then acquire `gate`, which limits all requests of a worker. Waiting for one host does not block others.
        """
        async with self.lock:
            while (wait := self.next_at - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            await gate.acquire()
            self.next_at = time.monotonic() + self.every
        try:
            yield
        finally:
            gate.release()

    async def sending(self) -> None:
        """Wait again just before a request is sent, because connecting may have delayed the previous request."""
        while (wait := self.sent_at + self.every - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        self.sent_at = time.monotonic()
        self.next_at = max(self.next_at, self.sent_at + self.every)

    def slower(self, every: float) -> None:
        """Increase the time between requests to at least `every` seconds, counted from the last request."""
        self.every = max(self.every, every)
        self.next_at = max(self.next_at, self.sent_at + self.every)

    def rest(self, seconds: float) -> None:
        self.next_at = max(self.next_at, time.monotonic() + seconds)

    def observe(self, status: int, after: str | None, settings: Fetch) -> None:
        """Pause after a status 429 or 5xx for as long as `after` (the header Retry-After) asks.

        Without this header, pause `settings.rest` seconds after the third status 429 or 5xx in a row.
        """
        if status != 429 and status < 500:
            self.complaints = 0
            return
        self.complaints += 1
        seconds = seconds_of(after)
        if seconds is not None:
            self.rest(min(seconds, settings.longest_rest))
        elif self.complaints >= THRICE:
            self.rest(settings.rest)
            self.complaints = 0

    def ended(self, well: bool, settings: Fetch) -> None:
        self.failures = 0 if well else self.failures + 1
        if self.failures >= settings.failures:
            self.left = "host left"


def seconds_of(after: str | None) -> float | None:
    """Return how many seconds a Retry-After header asks to wait; None if it is neither a number nor a date."""
    if not after:
        return None
    if after.strip().isdecimal():
        return float(after.strip()[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    return None


class Robots:
    """The rules of a robots.txt (RFC 9309) for our user agent, and the content that the site reserves.

    Content is reserved by lines `Content-Signal: ai-train=no` and `Content-Usage: [PATH] train-ai=n` of the robots.txt,
    and by `optouts`: texts in the form of a robots.txt, in which Disallow reserves.
    """

    def __init__(self, text: str | None, agent: str, why: str = "", optouts: Sequence[str] = ()) -> None:
        """Parse the text of a robots.txt. If `text` is None, nothing is allowed, for the reason `why`."""
        self.text, self.agent, self.why = text, agent, why
        lines = lines_for(text or "", agent)
        self._rules = _parsed(line for line in lines if not line[0].startswith("content"))
        used = [usage for field, value in lines if field.startswith("content") if (usage := usage_of(value))]
        reserved = _parsed(("disallow" if no else "allow", path or "/") for no, path in used if no or path)
        self._reserved = [one for one in (reserved, *(_parsed(lines_for(text, agent)) for text in optouts)) if one]

    def allows(self, address: str) -> bool:
        if self.text is None:
            return False
        return self._rules is None or bool(self._rules.can_fetch(address, self.agent))

    def reserves(self, address: str) -> bool:
        """Return True if the site opts out of mining this address."""
        return not all(rules.can_fetch(address, self.agent) for rules in self._reserved)

    @property
    def delay(self) -> float:
        return float(self._rules.crawl_delay(self.agent) or 0.0) if self._rules is not None else 0.0


def _parsed(lines: Iterable[tuple[str, str]]) -> Any:
    """Return rules that match as those of a robots.txt, or None for no lines."""
    if not (texts := [f"{field}: {value}" for field, value in lines]):
        return None
    with requires_extra("diptych mine", "mine"):
        from protego import Protego
    return Protego.parse("\n".join(("User-agent: *", *texts)))


def tdm_rules(text: str) -> str:
    """Return the reservations of a tdmrep.json (TDMRep) in the form of a robots.txt; "" for any other text."""
    try:
        rules = [(int(entry["tdm-reservation"]), str(entry["location"])) for entry in parse_json(text)]
    except (ValueError, KeyError, TypeError):
        return ""
    return "\n".join(("User-agent: *", *(f"{'Disallow' if kept else 'Allow'}: {path}" for kept, path in rules)))


def lines_for(text: str, agent: str) -> list[tuple[str, str]]:
    """Return (field, value) of the lines of a robots.txt that apply to a product token, in order.

    They come from all groups that name `agent`, without regard to case; if none does, from the groups of `*`. Other
    records, such as Crawl-delay, do not end the list of a group's agents (RFC 9309, section 2.2.4). A Disallow is read
    up to a damaged character, and an Allow that has one is left out, so that no more is allowed than was meant.
    """
    groups = dict[str, list[tuple[str, str]]]()
    ours, named, ruled = _token(agent) or "*", set[str](), False
    for raw in re.split("[\r\n]", text.replace("\ufeff", "")):
        line = raw.replace("\0", "") if 3 * raw.count("\0") > len(raw) else raw  # a file of UTF-8 and UTF-16
        if (match := _LINE.match(line.partition("#")[0])) is None:
            continue
        field, (value, *damage) = match[1].lower(), _DAMAGE.split(match[2].strip(), maxsplit=1)
        if field.startswith("user"):
            named = (set[str]() if ruled else named) | {_token(value)} & {ours, "*"}
            groups, ruled = {name: [] for name in named} | groups, False
            continue
        field = "disallow" if field.startswith("d") else field
        ruled = ruled or field in ("allow", "disallow")
        for name in named if field != "allow" or not damage else ():
            groups[name].append((field, value))
    return groups.get(ours, groups.get("*", []))


def _token(value: str) -> str:
    """Return a product token in lower case, up to the first other character, such as that of a version; or `*`."""
    match = _TOKEN.match(value)
    return (match[1] or "*").lower() if match else ""


class RobotsCache:
    """Stores the robots.txt of each origin, and its opt-outs, in the run's folder, for `hours`."""

    def __init__(self, folder: Path, hours: float, agent: str) -> None:
        self.folder, self.hours, self.agent = folder, hours, agent

    def _path(self, origin: str) -> Path:
        return self.folder / f"{hashlib.sha256(origin.encode()).hexdigest()[:24]}.json"

    def get(self, origin: str) -> Robots | None:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            entry = parse_json(text_of(self._path(origin)))
            fresh = time.time() - entry["at"] <= self.hours * 3600 and entry["origin"] == origin
            return Robots(entry["text"], self.agent, optouts=entry["optouts"]) if fresh else None
        return None

    def put(self, origin: str, text: str, optouts: Sequence[str] = ()) -> Robots:
        self.folder.mkdir(parents=True, exist_ok=True)
        entry = {"origin": origin, "at": time.time(), "text": text, "optouts": optouts}
        write_atomically(self._path(origin), json.dumps(entry, ensure_ascii=True).encode())
        return Robots(text, self.agent, optouts=optouts)
