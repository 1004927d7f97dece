"""The second stage: copy images from the inputs, or fetch them.

URLs are divided into buckets by host. One worker therefore has all URLs of a host, and can limit the host's rate
without asking other workers. A redirect to another host is fetched in the next round, by the worker of that host.
"""

import asyncio
import errno
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from diptych.runtime.engine.outcome import Counts
from diptych.runtime.errors import DataError, DiptychError
from diptych.runtime.files import aside, bytes_of
from diptych_mine.checking import FetchJournal, Object, PageCounts, Retries, read_json
from diptych_mine.fetch.fetching import PASSING, FetchedBody, Fetcher, WantedAddress, check_contact
from diptych_mine.job import MiningJob
from diptych_mine.layout import RunLayout
from diptych_mine.pages import addresses, warc
from diptych_mine.pages.inputs import HERE
from diptych_mine.pages.pages import forbids
from diptych_mine.pages.tars import tar_pictures
from diptych_mine.settings import Fetch
from diptych_mine.tables import Row, digest, read_rows, write_json, write_shard

HOSTS = 64  # a bucket has about this many hosts or more; with few hosts, a worker would wait for a slow one
ADDRESSES = 1_000  # at most this many URLs per shard
CHECKPOINT = 15.0  # seconds between two saves; a killed process loses what was fetched since the last save
_EMPTY: Row = {"address": "", "reason": "", "status": 0, "final": "", "moved": "", "hops": 0, "media": "", "date": ""}
_ANSWER = ("address", "reason", "moved", "hops")


@dataclass(frozen=True)
class FetchStage:
    """Copy or fetch the images of all pages. The tables `index` list the URLs and where each image is stored."""

    job: MiningJob
    retry_failed: bool

    def run(self, pages: Sequence[str]) -> list[str]:
        """Return the names of the shards of `index`, the table of URLs.

        If two shards have the same URL, the later shard is used.
        """
        job = self.job
        wanted = {
            row["address"]
            for name in pages
            for row in read_rows(job.layout.table("pages", name), "pages", ["address", "page", "fails"])
            if not row["fails"] and not job.lists.refuse(row["address"], row["page"])
        }
        plans: dict[str, Object] = {}
        counts = {name: read_json(job.layout.counts("pages", name), PageCounts) for name in pages}
        moves = self._moves(wanted, counts.values())
        wanted |= set(moves.values())
        for name, one in counts.items():
            here = sorted(wanted.intersection(one.held))
            moved = {where: moves[where] for where in sorted(wanted.intersection(one.moves, moves))}
            wanted.difference_update(here, moved)
            if here or moved:
                plan = read_json(job.layout.plan(name), Object) | {"wanted": here, "moves": moved}
                plans[digest("take", plan["key"], here, *filter(None, [moved]))] = plan
        takes = job.make("take", "index", TakeImages(job.layout), plans)
        return takes if job.settings.offline else takes + self.fetch(a for a in wanted if not a.startswith(HERE))

    def _moves(self, wanted: Iterable[str], counts: Iterable[PageCounts]) -> dict[str, str]:
        """Return the redirects and revisits of the inputs that lead from wanted URLs to images of the inputs."""
        counts, steps = list(counts), dict[str, str]()
        held = {where for one in counts for where in one.held}
        moves = {where: there for one in counts for where, there in one.moves.items() if where not in held}
        for where in wanted:
            path = [where]
            while (there := moves.get(path[-1])) and there not in path and not self.job.lists.refuse(there):
                path.append(there)
            if path[-1] in held:
                steps |= dict(pairwise(path))
        return steps

    def fetch(self, wanted: Iterable[str]) -> list[str]:
        """Fetch URLs and their redirects.

        Temporary failures are then retried once for each --retry-failed so far. Returns the names of the shards of
        `index`, the table of URLs.
        """
        job, retries, names = self.job, self._retries, list[str]()
        hops = dict.fromkeys(wanted, 0)  # URL -> number of redirects that led to it
        if hops:
            check_contact(job.settings.fetch, sorted({addresses.host_of(one) for one in hops}))
        for attempt in range(retries + 1):
            done: dict[str, bool] = {}
            while hops:
                plans = {plan["key"]: plan for plan in buckets({WantedAddress(*one) for one in hops.items()}, attempt)}
                made = job.make("fetch", "index", FetchBucket(job.layout.out, job.settings.fetch), plans)
                names += made
                rows = [row for name in made for row in read_rows(job.layout.table("index", name), "index", _ANSWER)]
                done |= {row["address"]: row["reason"] in PASSING for row in rows}
                hops = {}
                for row in rows:
                    if row["moved"] and row["moved"] not in done and not job.lists.refuse(row["moved"]):
                        hops[row["moved"]] = min(row["hops"], hops.get(row["moved"], row["hops"]))
            hops = {address: 0 for address, passing in done.items() if passing}
        return names

    @cached_property
    def _retries(self) -> int:
        path = self.job.layout.work("retries.json")
        retries = read_json(path, Retries).retries if path.exists() else 0
        if self.retry_failed and self.job.layout.funnel.exists():
            retries += 1
            write_json(path, {"retries": retries})
        return retries


class Blob:
    """Writes image files into one concatenated file, and its shard of `index`.

    `commit` completes both. With `checkpoints`, the content is saved every CHECKPOINT seconds. After a kill, a new Blob
    of the same name resumes with the saved content.
    """

    def __init__(self, layout: RunLayout, name: str, checkpoints: bool = False) -> None:
        self.layout, self.name, self.rows, self.times = layout, name, list[Row](), dict[str, float]()
        self.path, self.checkpoints, self.kept_at = layout.blob(name), checkpoints, time.monotonic()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.partial = self.path.with_suffix(".partial") if checkpoints else aside(self.path)
        self.journal = self.path.with_suffix(".journal.json")
        end = self._resumed() if checkpoints else 0
        self.file: BinaryIO = self.partial.open("r+b" if end else "wb")
        self.file.seek(end)
        self.file.truncate()

    def _resumed(self) -> int:
        """Load what a killed process saved.

        Return the position in bytes at which its last image ends; 0 if the file is missing or damaged.
        """
        try:
            kept = read_json(self.journal, FetchJournal)
            end = max((row.offset + row.length for row in kept.rows if row.length), default=0)
            if self.partial.stat().st_size < end:
                return 0
        except (DataError, OSError):
            return 0
        self.rows, self.times = [row.model_dump() for row in kept.rows], kept.times
        return end

    def add(self, row: Row, body: bytes = b"", at: float = 0.0) -> None:
        """Add the row of a URL, and the body of its response. `at`: the time of the fetch in seconds since 1970."""
        offset = self.file.tell() if body else -1
        with self._disk_errors():
            self.file.write(body)
            self.rows.append(_EMPTY | row | {"offset": offset, "length": len(body)})
            if body and at:
                self.times[row["address"]] = at
            if self.checkpoints and time.monotonic() >= self.kept_at + CHECKPOINT:
                self.file.flush()
                os.fsync(self.file.fileno())
                write_json(self.journal, {"rows": self.rows, "times": self.times})
                self.kept_at = time.monotonic()

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with suppress(OSError):
                self.file.close()
            self.partial.unlink(missing_ok=True)
            why = "the disk is full" if error.errno == errno.ENOSPC else f"cannot write {self.path}: {error.strerror}"
            raise DiptychError(f"{why}; free space in {self.path.parent}, and run the same command again") from error

    def commit(self) -> Counts:
        with self._disk_errors():
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            os.replace(self.partial, self.path)
        if self.times:
            write_json(self.layout.times(self.name), self.times)
        rows = sorted(self.rows, key=lambda row: str(row["address"]))
        counts = {"asked": len(rows), "had": sum(1 for row in rows if row["length"])}
        made = write_shard(self.layout, "index", self.name, rows, counts)
        self.journal.unlink(missing_ok=True)
        return made


@dataclass(frozen=True)
class TakeImages:
    """Copies the images of a shard from its input."""

    layout: RunLayout

    def __call__(self, name: str) -> Counts:
        spec = read_json(self.layout.plan(name), Object)
        wanted, blob = set(spec["wanted"]), Blob(self.layout, name)
        for row, body in _images(spec, wanted):
            if row["address"] in wanted:
                wanted.discard(row["address"])
                blob.add(row, body)
        for where in sorted(wanted):
            blob.add({"address": where, "reason": "not in the file any more"})
        for where, there in spec["moves"].items():
            blob.add({"address": where, "moved": there})
        return blob.commit()


def _images(spec: Object, wanted: set[str]) -> Iterator[tuple[Row, bytes]]:
    """Yield the row and bytes of each image in `wanted` that the input has.

    The caller removes the URL of each of these images from `wanted`.
    """
    path = Path(spec["path"])
    match spec["kind"]:
        case "warc":
            yield from _from_warc(path, tuple(spec["part"]), wanted)
        case "tar":
            for where, body in tar_pictures(path, spec["key"], wanted):
                yield _row(where), body
        case "pictures":  # other kinds of input must not name local files
            yield from map(from_disk, sorted(wanted))


def _row(address: str, **more: str) -> Row:
    return {"address": address, "status": 200, "final": address, **more}


def _from_warc(path: Path, part: tuple[int, int], wanted: set[str]) -> Iterator[tuple[Row, bytes]]:
    """Yield complete images first, and damaged images last, because a second copy of an image may be complete."""
    damaged: dict[str, str] = {}
    for record in warc.read(path, ("picture",), part):
        where = addresses.absolute(record.address, record.address)
        if where not in wanted:
            continue
        if record.kind == "picture":
            optout = forbids(record.headers)
            row = _row(where, date=record.date, **({"reason": "opt-out"} if optout else {}))
            yield row, b"" if optout else record.body
        elif record.kind in ("bad", "large"):
            damaged[where] = "too large" if record.kind == "large" else "damaged in its file"
    for where, why in sorted(damaged.items()):
        yield {"address": where, "reason": why}, b""


def from_disk(where: str) -> tuple[Row, bytes]:
    """Return the row and the bytes of an image file, given a `file:` URL."""
    path = Path(where.removeprefix(HERE))
    try:
        if not path.is_file():  # reading a device or a pipe may never end
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if path.stat().st_size > warc.MOST_BODY:
            return {"address": where, "reason": "too large"}, b""
        return _row(where), bytes_of(path)
    except (OSError, ValueError) as error:
        return {"address": where, "reason": f"no file: {getattr(error, 'strerror', None) or 'no name of a file'}"}, b""


@dataclass(frozen=True)
class FetchBucket:
    """Fetches the shards of a bucket of hosts, one after the other."""

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
        blob = Blob(layout, name, checkpoints=True)
        done = {row["address"] for row in blob.rows}

        def keep(answer: FetchedBody) -> None:
            row = {key: getattr(answer, key) for key in _EMPTY if key != "date"}
            blob.add(row, answer.body, answer.at)

        try:
            await fetcher.all([one for one in wanted if one.address not in done], keep)
            return blob.commit()
        finally:
            blob.file.close()


def buckets(wanted: Iterable[WantedAddress], attempt: int) -> list[dict[str, Any]]:
    """Return the plan of each bucket.

    Plans depend only on the set of URLs, not on the order of the URLs or the number of workers.
    """
    hosts: dict[str, list[WantedAddress]] = {}
    for one in sorted(set(wanted), key=lambda one: (one.address, one.hops)):
        hosts.setdefault(addresses.host_of(one.address), []).append(one)
    total = sum(map(len, hosts.values()))
    count = max(1, min(-(-len(hosts) // HOSTS), -(-total // ADDRESSES)))
    parts: list[list[str]] = [[] for _ in range(count)]
    for host in sorted(hosts):
        parts[int(digest(host), 16) % count].append(host)
    return [_bucket([hosts[host] for host in part], attempt) for part in parts if part]


def _bucket(hosts: Sequence[Sequence[WantedAddress]], attempt: int) -> dict[str, Any]:
    """Return the plan of a bucket.

    URLs of different hosts alternate, so that a shard of 1,000 URLs has several hosts.
    """
    turns = [[one.address, one.hops] for turn in zip_longest(*hosts) for one in turn if one is not None]
    shards = [turns[start : start + ADDRESSES] for start in range(0, len(turns), ADDRESSES)]
    names = [digest("fetch", shard, attempt) for shard in shards]
    return {"key": digest("bucket", names), "shards": names, "wanted": shards}
