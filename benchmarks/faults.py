"""What hostile clients do to a service: garbage, damage, bombs, half requests, slow senders. It keeps answering.

    uv run python -m benchmarks.faults MODEL [--bodies 10000]

MODEL is a folder that captions. `diptych serve` runs in a process of its own. Bodies are drawn by hypothesis (a seed,
so they are the same each time), for every task, as JSON, as a form and as neither. After every 500 of them, and after
each of the other attacks, a good request is timed. Fails where an answer has a status of 500 or more but 503, where a
traceback is in an answer or in the log, or where a good request takes a second or more. Writes
benchmarks/results/faults.json.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.clients import BOUNDARY, Connection, form, post
from benchmarks.machine import save_result

TASKS = ("caption", "ask", "ground", "choose", "verify", "search")
NAMES = ("image", "picture", "model", "question", "expression", "statement", "answers", "rationales", "query", "most",
         "captions", "beams", "sample", "temperature", "top_k", "top_p", "seed", "max_words", "explain")  # fmt: skip
KINDS = ("application/json", f"multipart/form-data; boundary={BOUNDARY}", "multipart/form-data", "image/png", "",
         "application/json; charset=utf-16", "application/x-www-form-urlencoded")  # fmt: skip
PATHS = ("../../etc/passwd", "/etc/passwd", "..\\..\\a.png", "file:///etc/passwd", "http://169.254.169.254/", "a\0.png",
         "%2e%2e%2f", "con", "x" * 5000)  # fmt: skip
GOOD_EVERY = 500
HELD = 50


def garbage() -> st.SearchStrategy[tuple[str, str, bytes]]:
    """A task, a content type, a body."""
    plain = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=30) | st.sampled_from(PATHS)
    values = st.recursive(
        plain,
        lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inside, max_size=6),
        max_leaves=12,
    )
    as_json = st.builds(lambda value: json.dumps(value).encode(), values)
    fields = st.lists(st.tuples(st.sampled_from(NAMES) | st.text(max_size=9), st.binary(max_size=60)), max_size=6)
    as_form = st.builds(_form, fields, st.sampled_from(["", *PATHS]), st.booleans())
    damaged = st.builds(_damaged, st.integers(0, 2**32), st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"]))
    bodies = st.one_of(st.binary(max_size=400), as_json, as_form, damaged)
    return st.tuples(st.sampled_from(TASKS), st.sampled_from(KINDS), bodies)


def _form(fields: list[tuple[str, bytes]], file: str, ended: bool) -> bytes:
    parts = b""
    for name, value in fields:
        parts += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode("utf-8", "replace")
        parts += value + b"\r\n"
    if file:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="{file}"\r\n\r\n'
        parts += head.encode("utf-8", "replace") + b"no picture\r\n"
    return parts + (f"--{BOUNDARY}--\r\n".encode() if ended else b"")


def _damaged(drawn: int, kind: str) -> bytes:
    """A form with a picture of which some bytes are others."""
    from random import Random

    rng, content = Random(drawn), bytearray(small_picture(kind))
    for _ in range(rng.randint(1, 30)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return form(bytes(content[: rng.randint(1, len(content))])).partition(b"\r\n\r\n")[2]


def small_picture(kind: str = "PNG") -> bytes:
    content = io.BytesIO()
    Image.linear_gradient("L").resize((40, 30)).convert("RGB").save(content, kind)
    return content.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG whose head promises that many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 2, 0, 0, 0))
    rows = zlib.compress(bytes(10_000_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def drawn_bodies(count: int) -> Iterator[tuple[str, str, bytes]]:
    """The same each time. They are drawn in parts, as hypothesis slows down in long runs."""
    for start in range(0, count, GOOD_EVERY):
        yield from _drawn(min(GOOD_EVERY, count - start), start)


def _drawn(count: int, number: int) -> list[tuple[str, str, bytes]]:
    kept: list[tuple[str, str, bytes]] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(garbage())
    def draw(one: tuple[str, str, bytes]) -> None:
        kept.append(one)

    draw()
    return kept


class Attack:
    """An attack on one service; `faults` lists what went wrong, as sentences."""

    def __init__(self, address: tuple[str, int], good: bytes, patience: float = 1.0) -> None:
        self.address, self.good, self.patience = address, good, patience
        self.connection = Connection(*address)
        self.slowest = 0.0
        self.faults: list[str] = []

    async def ask(self, request: bytes, what: str) -> int:
        """The status; 0 where the connection was closed without an answer."""
        try:
            answer = await self.connection.ask(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.connection.close()
            return 0
        if (answer.status >= 500 and answer.status != 503) or b"Traceback" in answer.body:
            self.faults.append(f"{what}: {answer.status} {answer.body[:300]!r}")
        return answer.status

    async def check(self, what: str) -> None:
        """A good request is answered, in less than `patience` seconds."""
        begun = time.perf_counter()
        status = await self.ask(self.good, what)
        if status == 0:
            status = await self.ask(self.good, what)  # the connection had been closed by what came before
        took = time.perf_counter() - begun
        self.slowest = max(self.slowest, took)
        if status != 200 or took >= self.patience:
            self.faults.append(f"after {what} a good request took {took:.2f} s: {status}")

    async def bodies(self, count: int) -> Counter[int]:
        statuses: Counter[int] = Counter()
        for number, (task, kind, body) in enumerate(drawn_bodies(count)):
            statuses[await self.ask(post(f"/v1/{task}", body, kind), f"body {number}")] += 1
            if number % GOOD_EVERY == GOOD_EVERY - 1:
                await self.check(f"body {number}")
        return statuses

    async def shaped(self) -> dict[str, int]:
        """One of each: the status."""
        huge = b'{"question": "' + b"a" * (15 << 20) + b'"}'
        deep = b'{"answers": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
        many = b"{" + b", ".join(b'"%d": 1' % number for number in range(200_000)) + b"}"
        sent = {
            "a bomb of 60,000 by 60,000 pixels": form(bomb(60_000, 60_000)),
            "a bomb of 6,000 by 6,000 with rows for less": form(bomb(6_000, 6_000)),
            "15 MiB of JSON": post("/v1/ask", huge, "application/json"),
            "JSON of a million brackets": post("/v1/choose", deep, "application/json"),
            "JSON of 200,000 names": post("/v1/ask", many, "application/json"),
            "base64 that is none": post("/v1/caption", b'{"image": "' + b"=" * 99_999 + b'"}', "application/json"),
            "17 MiB": post("/v1/caption", bytes(17 << 20), "image/png"),
            "a path as the name of a picture": form(small_picture(), name="../../etc/passwd"),
            "a path of pictures": b"GET /v1/pictures/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "a path of files": b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "a method that is none": b"BREW /v1/caption HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
            "two lengths": post("/v1/ask", b"abc", "application/json").replace(
                b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n"
            ),
            "another host": b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 50 + b"\r\n\r\n",
        }
        found = {}
        for what, request in sent.items():
            found[what] = await self.ask(request, what)
            self.connection.close()
            await self.check(what)
        return found

    async def held(self) -> None:
        """Connections that stop at every place of a request, and some that send a byte each tenth of a second."""
        streams = [await asyncio.open_connection(*self.address) for _ in range(HELD)]
        for number, (_, writer) in enumerate(streams):
            writer.write(self.good[: len(self.good) * number // HELD])
        await self.check("half requests")
        for _ in range(20):
            for _, writer in streams[:10]:
                if not writer.is_closing():
                    writer.write(b"x")
            await asyncio.sleep(0.1)
        await self.check("slow senders")
        for _, writer in streams:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        await self.check("half requests that were given up")


async def attack(address: tuple[str, int], bodies: int, patience: float = 1.0) -> dict[str, Any]:
    """Figures, with `faults`, a list of what must not be."""
    one = Attack(address, form(small_picture()), patience)
    try:
        await one.check("the start")
        statuses = await one.bodies(bodies)
        shaped = await one.shaped()
        await one.held()
    finally:
        one.connection.close()
    return {
        "bodies": sum(statuses.values()),
        "by status (0: closed)": {str(status): count for status, count in sorted(statuses.items())},
        "one of each": shaped,
        "connections held half open": HELD,
        "slowest good request after any, ms": round(1000 * one.slowest),
        "faults": one.faults,
    }


def main(model: Path, bodies: int) -> None:
    from benchmarks.serve import serving

    with serving(str(model)) as (process, address):
        begun = time.perf_counter()
        figures = asyncio.run(attack(address, bodies))
        figures["seconds"] = round(time.perf_counter() - begun)
        figures["memory, MiB"] = process.memory_info().rss >> 20
    print(save_result("faults", f"uv run python -m benchmarks.faults {model} --bodies {bodies}", figures).read_text())
    raise SystemExit(1 if figures["faults"] else 0)


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model", type=Path)
    words.add_argument("--bodies", type=int, default=10_000)
    asked = words.parse_args()
    main(asked.model, asked.bodies)
