"""The fetcher against a host that lies in every way; and addresses that no connection may reach."""

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diptych.runtime.errors import RecipeError
from diptych_mine.fetch import gathering
from diptych_mine.fetch.fetching import FetchedBody, WantedAddress, check_contact
from diptych_mine.fetch.hosts import Host, Robots, seconds_of
from diptych_mine.fetch.safety import AddressGuard, PrivateAddress, Resolver, parse_resolve
from diptych_mine.layout import RunLayout
from diptych_mine.pages.charsets import content_type
from diptych_mine.pages.reading import body_of
from diptych_mine.settings import Fetch
from diptych_mine.tables import read_rows, write_json
from tests.support.local_web import OK, PICTURE, Web


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (PICTURE, ""),
        (OK + b"Content-Length: 900\r\n\r\nkite", "reset"),
        (OK + b"Content-Length: 2001\r\n\r\n" + b"k" * 2001, "too large"),
        (OK + b"\r\n" + b"k" * 5000, "too large"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "status 404"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "server error"),
        (b"HTTP/1.1 302 To\r\nContent-Length: 0\r\n\r\n", "redirect without an address"),
        (b"HTTP/1.1 302 To\r\nLocation: /k\r\nContent-Length: 0\r\n\r\n", "the redirects form a loop"),
        (b"HTTP/1.1 302 To\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "unusable address"),
        (b"HTTP/1.1 302 To\r\nLocation: http://a.test:22/\r\nContent-Length: 0\r\n\r\n", "unusable address"),
        (OK + b"X-Robots-Tag: noai\r\nContent-Length: 4\r\n\r\nkite", "opt-out"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nkite", "bad encoding"),
        (b"kite kite kite\r\n\r\n", "not HTTP"),
        (b"", "reset"),
    ],
)  # fmt: skip
def test_each_answer_has_its_verdict(tmp_path: Path, answer: bytes, reason: str) -> None:
    (found,) = Web({"/k": answer}).fetch(tmp_path, "/k", most_bytes=2000)
    assert (found.reason, found.body) == (reason, b"kite" if not reason else b"")


def test_slow_ones_are_left_in_time_and_tried_again(tmp_path: Path) -> None:
    web = Web({"/hang": b"", "/drip-hang": OK + b"Content-Length: 100\r\n\r\nk"})
    assert [found.reason for found in web.fetch(tmp_path, "/hang", "/drip-hang", retries=1)] == ["timeout", "timeout"]
    assert sum(path == "/hang" for _, path, _ in web.asked) == 2


def test_a_404_is_asked_for_once_and_a_503_thrice(tmp_path: Path) -> None:
    no = {"/a": b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "/b": b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"}
    web = Web(no)
    web.fetch(tmp_path, "/a", "/b")
    assert [sum(path == one for _, path, _ in web.asked) for one in ("/a", "/b")] == [1, 3]


def test_robots_are_asked_once_and_heard(tmp_path: Path) -> None:
    text = b"User-agent: *\nDisallow: /closed/\n"
    web = Web({"/robots.txt": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text), "/open": PICTURE})
    assert [found.reason for found in web.fetch(tmp_path, "/closed/k", "/open")] == ["robots", ""]
    assert [path for _, path, _ in web.asked] == ["/robots.txt", "/open"]
    web.fetch(tmp_path, "/open")  # kept for a day, beside the run
    assert sum(path == "/robots.txt" for _, path, _ in web.asked) == 1


@pytest.mark.parametrize(
    ("robots", "reason"),
    [
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", ""),
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "robots unreachable"),
        (b"", "robots unreachable"),
    ],
)
def test_what_robots_that_cannot_be_read_mean(tmp_path: Path, robots: bytes, reason: str) -> None:
    (found,) = Web({"/robots.txt": robots, "/k": PICTURE}).fetch(tmp_path, "/k")
    assert found.reason == reason


def test_a_crawl_delay_holds_and_one_that_is_too_long_leaves_the_host(tmp_path: Path) -> None:
    assert Robots("User-agent: *\nCrawl-delay: 7", "diptych-mine").delay == 7
    text = b"User-agent: diptych-mine\nCrawl-delay: 90\n"
    web = Web({"/robots.txt": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text), "/k": PICTURE})
    assert web.fetch(tmp_path, "/k")[0].reason == "crawl delay"


def test_a_crawl_delay_holds_from_robots_on(tmp_path: Path) -> None:
    text = b"User-agent: *\nCrawl-delay: 0.3\n"
    web = Web({"/robots.txt": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text), "/k": PICTURE})
    web.fetch(tmp_path, "/k", "/k")
    times = [at for _, _, at in web.asked]
    assert len(times) == 3
    assert min(after - before for before, after in pairwise(times)) > 0.28


def test_gaps_are_those_of_requests_and_not_of_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first name took a while to resolve, and the second request came that much too early."""
    resolve, slow = Resolver.resolve, [0.25]

    async def late(self: Resolver, *given: Any, **more: Any) -> Any:
        await asyncio.sleep(slow.pop() if slow else 0)
        return await resolve(self, *given, **more)

    monkeypatch.setattr(Resolver, "resolve", late)
    web = Web({"/k": PICTURE})
    web.fetch(tmp_path, "/k", rate=3.0)
    robots, picture = (at for _, _, at in web.asked)
    assert picture - robots > 0.3


def test_a_kill_costs_what_came_since_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Killed(Exception):
        pass

    class Fake:
        most = 3

        def __init__(self, *_: object) -> None:
            pass

        async def __aenter__(self) -> "Fake":
            return self

        async def __aexit__(self, *raised: object) -> None:
            pass

        async def all(self, wanted: list[WantedAddress], keep: Callable[[FetchedBody], None]) -> None:
            for number, one in enumerate(wanted):
                if number == Fake.most:
                    raise Killed
                asked.append(one.address)
                keep(FetchedBody(one.address, status=200, final=one.address, body=one.address.encode() * 9, at=1.0))

    monkeypatch.setattr(gathering, "Fetcher", Fake)
    monkeypatch.setattr(gathering, "CHECKPOINT", 0.0)
    (plan,) = gathering.buckets({WantedAddress(f"http://a.test/{n}.jpg") for n in range(8)}, 0)
    layout = RunLayout(tmp_path)
    write_json(layout.plan(plan["key"]), plan)
    for most in (3, 3, 9):
        Fake.most = most
        with suppress(Killed):
            gathering.FetchBucket(tmp_path, Fetch())(plan["key"])
    assert sorted(asked) == [f"http://a.test/{n}.jpg" for n in range(8)]
    (shard,) = plan["shards"]
    rows = read_rows(layout.table("index", shard), "index")
    assert [row["address"] for row in rows] == sorted(asked)
    assert all(body_of(layout, shard, row) == row["address"].encode() * 9 for row in rows)
    assert set(json.loads(layout.times(shard).read_text())) == set(asked)
    assert [path.name for path in tmp_path.rglob("*") if "partial" in path.name or "journal" in path.name] == []


@pytest.mark.parametrize("damage", ["journal", "blob"])
def test_a_damaged_checkpoint_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setattr(gathering, "CHECKPOINT", 0.0)
    layout, name = RunLayout(tmp_path), "0" * 16
    blob = gathering.Blob(layout, name, checkpoints=True)
    blob.add({"address": "http://a.test/k"}, b"kite")
    blob.file.close()
    again = gathering.Blob(layout, name, checkpoints=True)
    again.file.close()
    assert len(again.rows) == 1
    if damage == "journal":
        again.journal.write_text('{"rows": [{"address": 1}]}')
    else:
        again.partial.write_bytes(b"k")
    new = gathering.Blob(layout, name, checkpoints=True)
    new.file.close()
    assert new.rows == []


def test_five_redirects_are_followed_and_six_are_not(tmp_path: Path) -> None:
    to = b"HTTP/1.1 302 To\r\nLocation: /%d\r\nContent-Length: 0\r\n\r\n"
    answers = {f"/{n}": to % (n - 1) for n in range(1, 7)} | {"/0": PICTURE}
    assert [found.reason for found in Web(answers).fetch(tmp_path, "/5", "/6")] == ["", "too many redirects"]


def test_a_redirect_to_another_host_is_left_to_that_hosts_worker(tmp_path: Path) -> None:
    to = b"HTTP/1.1 302 To\r\nLocation: http://b.test/k\r\nContent-Length: 0\r\n\r\n"
    web = Web({"a.test/k": to, "b.test/k": PICTURE})
    (found,) = web.fetch(tmp_path, "/k")
    assert (found.moved, found.hops, found.reason) == ("http://b.test/k", 1, "")
    assert {host for host, _, _ in web.asked} == {"a.test"}


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "0x7f000001", "2130706433", "017700000001", "127.1", "localhost", "[::1]", "[::ffff:10.0.0.1]",
             "169.254.169.254", "100.64.0.1", "10.1.2.3", "0.0.0.0", "[64:ff9b::a00:1]", "[fe80::1]", "[fd00::1]"],
)  # fmt: skip
def test_no_spelling_reaches_a_private_address(tmp_path: Path, host: str) -> None:
    (found,) = Web({"/k": PICTURE}).fetch(tmp_path, f"http://{host}/k", allow=(), retries=0)
    assert found.reason in ("private address", "unusable address")


def test_a_redirect_to_a_private_address_is_refused(tmp_path: Path) -> None:
    (found,) = Web({"/k": PICTURE}).fetch(tmp_path, "/k", host="b.test", allow=(), resolve=("*.test=10.0.0.1",))
    assert found.reason == "private address"


def test_the_address_is_checked_when_the_socket_is_made() -> None:
    """A name that is public the first time and private the second reaches nothing: no name is looked at here."""
    guard = AddressGuard()
    made = guard((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80)))
    made.close()
    with pytest.raises(PrivateAddress, match=r"private address 10\.0\.0\.1"):
        guard((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 80)))


@pytest.mark.parametrize(
    "address", ["fec0::1", "64:ff9b:1::7f00:1", "::ffff:0:7f00:1", "5f00::1", "fd00::1", "2002:7f00:1::", "::127.0.0.1"]
)
def test_no_spelling_of_an_address_that_is_not_public_is_let_through(address: str) -> None:
    assert not AddressGuard().lets(address)
    assert AddressGuard(["::/0", "0.0.0.0/0"]).lets(address)
    assert AddressGuard().lets("2606:4700::1111")


def test_a_host_is_asked_at_its_rate_and_no_more_at_once_than_the_gate_lets_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock of the test's own, which only sleeping moves."""
    clock, starts, at_once = [100.0], list[float](), list[int]()

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    async def ask(host: Host, gate: asyncio.Semaphore, under_way: set[object], ended: asyncio.Event) -> None:
        async with host.turn(gate):
            starts.append(clock[0])
            under_way.add(request := object())
            at_once.append(len(under_way))
            if len(starts) == 2:
                ended.set()  # the first two are under way together, and all others after them
            await ended.wait()
            under_way.remove(request)

    async def run() -> None:
        host, gate, under_way, ended = Host("a.test", 0.05), asyncio.Semaphore(2), set[object](), asyncio.Event()
        await asyncio.gather(*(ask(host, gate, under_way, ended) for _ in range(6)))

    monkeypatch.setattr("diptych_mine.fetch.hosts.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(run())
    assert starts == pytest.approx([100 + 0.05 * number for number in range(6)])
    assert max(at_once) == 2


def test_the_fetcher_gives_each_host_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, float]] = []

    def host(name: str, every: float) -> Host:
        made.append((name, every))
        return Host(name, every)

    monkeypatch.setattr("diptych_mine.fetch.fetching.Host", host)
    Web({"/k": PICTURE}).fetch(tmp_path, "http://a.test/k", "http://b.test/k", rate=25.0)
    assert sorted(made) == [("a.test", 0.04), ("b.test", 0.04)]


def test_retry_after_and_complaints_are_a_rest() -> None:
    settings, host = Fetch(rest=60, longest_rest=120), Host("a.test", 0.0)
    for status in (503, 503, 200, 503, 503):  # no three in a row
        host.observe(status, None, settings)
    assert host.next_at == 0
    host.observe(429, None, settings)
    first = host.next_at
    assert first > 0
    host.observe(429, "100000", settings)
    assert 50 < host.next_at - first < 70  # 120 at the most, not a day
    assert seconds_of("7") == 7
    assert seconds_of("no date") is None


def test_after_twenty_failures_a_host_is_left(tmp_path: Path) -> None:
    web = Web({})
    found = web.fetch(tmp_path, *(f"/{n}" for n in range(30)), retries=0, connections_per_host=1, failures=5)
    assert [one.reason for one in found] == ["reset"] * 5 + ["host left"] * 25


def test_whoever_fetches_has_to_be_reachable() -> None:
    with pytest.raises(RecipeError, match="--contact"):
        check_contact(Fetch(), ["example.org"])
    check_contact(Fetch(contact="me@a.test"), ["example.org"])
    check_contact(Fetch(resolve=("*.test=127.0.0.1:80",)), ["a.test"])


@pytest.mark.parametrize("told", ["x", "a.test=nowhere", "=127.0.0.1"])
def test_places_that_are_no_places_are_named(told: str) -> None:
    told_wrong: Callable[[], object] = lambda: parse_resolve([told]) or AddressGuard((told,))  # noqa: E731
    with pytest.raises(RecipeError):
        told_wrong()


def test_the_charset_of_the_header_is_kept(tmp_path: Path) -> None:
    body = b"HTTP/1.1 200 OK\r\nContent-Type: Text/HTML ; Charset='windows-1251'\r\nContent-Length: 2\r\n\r\n\xe4\xe0"
    (found,) = Web({"/page": body}).fetch(tmp_path, "/page")
    assert found.media == "text/html; charset=windows-1251"
    assert content_type(found.media) == ("text/html", "windows-1251")
    assert content_type("image/jpeg") == ("image/jpeg", None)
