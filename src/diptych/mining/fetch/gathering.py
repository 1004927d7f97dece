"""The second stage: pictures taken from the inputs themselves, or fetched; and who fetches what.

Addresses are cut into buckets by host, so that one host is always one worker's and its limits hold without any talk. A
redirect to another host waits for a next round, in which it is that host's worker's.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from diptych.mining.checking import Object, Times, read_json
from diptych.mining.fetch.fetching import FetchedBody, Fetcher, WantedAddress
from diptych.mining.layout import RunLayout
from diptych.mining.pages import addresses, warc
from diptych.mining.pages.pages import forbids
from diptych.mining.pages.tars import HERE, tar_pictures
from diptych.mining.settings import Fetch
from diptych.mining.tables import Row, digest, write_json, write_rows
from diptych.runtime.engine.outcome import Counts
from diptych.runtime.errors import DiptychError
from diptych.runtime.files import bytes_of

HOSTS = 64  # of a bucket, so that those that are slow do not leave a worker idle
ADDRESSES = 1_000  # of a shard


class Blob:
    """Bodies one after the other in a file beside, which takes its place when `commit` has the index."""

    def __init__(self, layout: RunLayout, name: str) -> None:
        self.layout, self.name, self.rows = layout, name, list[Row]()
        self.path = layout.blob(name)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        self.file: BinaryIO = self.beside.open("wb")

    def add(self, row: Row, body: bytes) -> None:
        offset = self.file.tell() if body else -1
        with self._told():
            self.file.write(body)
        self.rows.append(_EMPTY | row | {"offset": offset, "length": len(body)})

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with suppress(OSError):
                self.file.close()
            self.beside.unlink(missing_ok=True)
            why = "the disk is full" if error.errno == errno.ENOSPC else f"cannot write {self.path}: {error.strerror}"
            raise DiptychError(f"{why}; make room for {self.path.parent} and give the same command again") from error

    def commit(self, times: dict[str, float] | None = None) -> Counts:
        with self._told():
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            os.replace(self.beside, self.path)
        rows = sorted(self.rows, key=lambda row: str(row["address"]))
        write_rows(self.layout.table("index", self.name), rows, "index")
        if times:
            write_json(self.layout.times(self.name), times)
        counts = {"asked": len(rows), "had": sum(1 for row in rows if row["length"])}
        write_json(self.layout.counts("index", self.name), counts)
        return counts


_EMPTY: Row = {"address": "", "reason": "", "status": 0, "final": "", "moved": "", "hops": 0, "media": "", "date": ""}


@dataclass(frozen=True)
class Take:
    """Work of the engine: pictures that an input holds itself."""

    out: Path

    def __call__(self, name: str) -> Counts:
        layout = RunLayout(self.out)
        spec = read_json(layout.plan(name), Object)
        wanted, path = set(spec["wanted"]), Path(spec["path"])
        blob = Blob(layout, name)
        if spec["kind"] == "warc":
            damaged: dict[str, str] = {}
            for found in warc.read(path, ("picture",), tuple(spec["part"])):
                where = addresses.absolute(found.address, found.address)
                if found.kind == "picture" and where in wanted:
                    wanted.discard(where)
                    blob.add(*_from_warc(where, found))
                elif found.kind in ("bad", "large") and where in wanted:
                    damaged[where] = "too large" if found.kind == "large" else "damaged in its file"
            for where, why in sorted(damaged.items()):
                if where in wanted:
                    wanted.discard(where)
                    blob.add({"address": where, "reason": why}, b"")
        elif spec["kind"] == "tar":
            for where, body in tar_pictures(path, spec["key"], wanted):
                wanted.discard(where)
                blob.add({"address": where, "status": 200, "final": where}, body)
        elif spec["kind"] == "pictures":  # others do not name files of this disk
            for where in sorted(wanted):
                blob.add(*from_disk(where))
            wanted.clear()
        for where in sorted(wanted):
            blob.add({"address": where, "reason": "not in the file any more"}, b"")
        return blob.commit()


def _from_warc(where: str, found: warc.WarcRecord) -> tuple[Row, bytes]:
    row = {"address": where, "status": 200, "final": where, "date": found.date}
    if forbids(found.headers):
        return row | {"reason": "opt-out"}, b""
    return row, found.body


def from_disk(where: str) -> tuple[Row, bytes]:
    path = Path(where.removeprefix(HERE))
    try:
        if not path.is_file():  # a device or a pipe has no end
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if path.stat().st_size > warc.MOST_BODY:
            return {"address": where, "reason": "too large"}, b""
        body = bytes_of(path)
    except (OSError, ValueError) as error:
        return {"address": where, "reason": f"no file: {getattr(error, 'strerror', None) or 'no name of a file'}"}, b""
    return {"address": where, "status": 200, "final": where}, body


@dataclass(frozen=True)
class FetchBucket:
    """Work of the engine: the shards of one bucket of hosts, one after the other."""

    out: Path
    settings: Fetch

    def __call__(self, name: str) -> Counts:
        return asyncio.run(self._bucket(name))

    async def _bucket(self, name: str) -> Counts:
        layout = RunLayout(self.out)
        spec = read_json(layout.plan(name), Object)
        counts: Counts = {"asked": 0, "had": 0}
        async with Fetcher(self.settings, layout.work("robots")) as fetcher:
            for shard, wanted in zip(spec["shards"], spec["wanted"], strict=True):
                if not layout.counts("index", shard).exists():
                    made = await self._shard(layout, shard, [WantedAddress(*one) for one in wanted], fetcher)
                    counts = {key: counts[key] + made[key] for key in counts}
        return counts

    async def _shard(self, layout: RunLayout, name: str, wanted: list[WantedAddress], fetcher: Fetcher) -> Counts:
        blob, times = Blob(layout, name), dict[str, float]()

        def keep(answer: FetchedBody) -> None:
            blob.add(
                {"address": answer.address, "reason": answer.reason, "status": answer.status, "final": answer.final,
                 "moved": answer.moved, "hops": answer.hops, "media": answer.media},
                answer.body,
            )  # fmt: skip
            if answer.body:
                times[answer.address] = answer.at

        await fetcher.all(wanted, keep)
        return blob.commit(times)


def buckets(wanted: Iterable[WantedAddress], attempt: int) -> list[dict[str, Any]]:
    """What each bucket's shards are; the same for the same addresses, whoever asks and with however many workers."""
    hosts: dict[str, deque[WantedAddress]] = {}
    for one in sorted(set(wanted), key=lambda one: (one.address, one.hops)):
        hosts.setdefault(addresses.host_of(one.address), deque()).append(one)
    total = sum(map(len, hosts.values()))
    count = max(1, min(-(-len(hosts) // HOSTS), -(-total // ADDRESSES)))
    parts: list[list[str]] = [[] for _ in range(count)]
    for host in sorted(hosts):
        parts[int(digest(host), 16) % count].append(host)
    return [_bucket([hosts[host] for host in part], attempt) for part in parts if part]


def _bucket(queues: Sequence[deque[WantedAddress]], attempt: int) -> dict[str, Any]:
    """Hosts take turns, so that a shard of a thousand addresses is not one host's."""
    turns: list[list[Any]] = []
    left = deque(queues)
    while left:
        queue = left.popleft()
        one = queue.popleft()
        turns.append([one.address, one.hops])
        if queue:
            left.append(queue)
    shards = [turns[start : start + ADDRESSES] for start in range(0, len(turns), ADDRESSES)]
    names = [digest("fetch", shard, attempt) for shard in shards]
    return {"key": digest("bucket", names), "shards": names, "wanted": shards}


def fetched_at(layout: RunLayout, names: Iterable[str]) -> dict[str, str]:
    """When each address was fetched, in UTC."""
    found: dict[str, str] = {}
    for name in names:
        path = layout.times(name)
        if path.exists():
            for address, at in read_json(path, Times).items():
                found[address] = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    return found
