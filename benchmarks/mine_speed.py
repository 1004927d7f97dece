"""Compare mining with the least work that it needs, in CPU seconds of one process; all figures are from one run.

- pages: from WARC to verdicts, against fastwarc that reads the file and selectolax that parses each page.
- decode: from bytes to measurements of an image, against Pillow that decodes it.
- fetch: from a server on this machine, against the same HTTP client in a plain loop, without robots.txt or limits.
- keep: the selection of the best pairs among made-up ones, in seconds and MiB.
- engines: a complete run offline with the local engine, and the time to start Ray.
- memory: peak memory of two local processes on a tenth of the shards, and on all.

The last two parts need a web with many files: `diptych storybook web --out WEB --pages 10000`, then `--web WEB`.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import io
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.machine import RESULTS, save_result
from diptych_mine.fetch.fetching import Fetcher, WantedAddress
from diptych_mine.judge.decode import measure
from diptych_mine.keep.keep import KEPT, Pairs, choose
from diptych_mine.pages import warc
from diptych_mine.pages.pages import TOGETHER, Page, read_page, settle
from diptych_mine.pages.texts import Vocabularies, english
from diptych_mine.settings import Fetch, MiningSettings
from diptych_world import web
from diptych_world.web.plan import WORDS
from diptych_world.web.serve import Server


def cpu(job: Callable[[], Any], rounds: int) -> float:
    """Return the median CPU seconds of `job`, including those of its child processes."""
    taken = []
    for _ in range(rounds):
        before = _used()
        job()
        taken.append(_used() - before)
    return statistics.median(taken)


def _used() -> float:
    return sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
               for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))  # fmt: skip


def pages(path: Path, rounds: int) -> dict[str, float]:
    """Measure reading the pages of a WARC file as the mining stage reads them. The file's images are skipped by both
    sides without unpacking."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType
    from selectolax.lexbor import LexborHTMLParser

    sizes = [len(found.body) for found in warc.read(path) if found.kind == "page"]
    words, settings = Vocabularies.of(None, None), MiningSettings()
    english()

    def floor() -> None:
        for record in ArchiveIterator(
            str(path), record_types=WarcRecordType.response, parse_http=True, auto_decode="all"
        ):
            if (record.http_content_type or "").startswith("text/html"):
                LexborHTMLParser(record.reader.read().decode("utf-8", "replace"))

    def ours() -> None:
        waiting: list[Page] = []
        for found in warc.read(path, bodies=("page",)):
            if found.kind == "page":
                waiting.append(read_page(found.address, found.body, settings, words, found.charset, found.headers))
            if len(waiting) == TOGETHER:
                settle(waiting, settings, words)
                waiting.clear()
        settle(waiting, settings, words)

    least, taken = cpu(floor, rounds), cpu(ours, rounds)
    return {"pages": len(sizes), "kilobytes_a_page": round(sum(sizes) / len(sizes) / 1000, 1),
            "floor_a_second": round(len(sizes) / least), "ours_a_second": round(len(sizes) / taken),
            "share_of_floor": round(least / taken, 3)}  # fmt: skip


def large(path: Path, out: Path, size: int = 56_000) -> Path:
    """Write the same pages without images. Paragraphs and links enlarge them to `size` bytes, the size of pages on the
    web."""
    rng, words = Random(0), " ".join(WORDS["prose"]["en"]).split()
    members = []
    for found in warc.read(path, bodies=("page",)):
        if found.kind == "page":
            filler = bytearray()
            while len(found.body) + len(filler) < size:
                name, text = rng.choice(words).strip(",."), " ".join(rng.choices(words, k=60))
                filler += (
                    f'<div class="{name}"><p>{text}</p><ul><li><a href="/{name}">{name}</a></li></ul></div>'.encode()
                )
            html = found.body.replace(b"</body>", bytes(filler) + b"</body>")
            for sentence in WORDS["prose"]["en"]:  # so that all pages have different texts
                html = html.replace(sentence.encode(), f"{' '.join(rng.choices(words, k=15))}.".encode())
            http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + html
            head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {found.address}\r\n"
            head += "Content-Type: application/http; msgtype=response\r\n"
            members.append(gzip.compress(f"{head}Content-Length: {len(http)}\r\n\r\n".encode() + http + b"\r\n\r\n"))
    out.write_bytes(b"".join(members))
    return out


def decode(path: Path, rounds: int) -> dict[str, float]:
    bodies = [found.body for found in warc.read(path) if found.kind == "picture"]
    rules = MiningSettings().pictures
    bodies = [body for body in bodies if not measure(body, rules)[1]]

    def floor() -> None:
        for body in bodies:
            Image.open(io.BytesIO(body)).load()

    least, taken = cpu(floor, rounds), cpu(lambda: [measure(body, rules) for body in bodies], rounds)
    return {"pictures": len(bodies), "floor_a_second": round(len(bodies) / least),
            "ours_a_second": round(len(bodies) / taken), "share_of_floor": round(least / taken, 3)}  # fmt: skip


def fetch(folder: Path, rounds: int) -> dict[str, float]:
    """Measure fetching. CPU time includes the server's, so the ratio is nearer to 1 than that of the clients alone."""
    import aiohttp

    with Server(folder) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        addresses = [
            f"http://{path.relative_to(folder / 'files').as_posix()}" for path in sorted(folder.glob("files/*/img/*"))
        ]
        addresses = [one for one in addresses if one not in server.faults][:400]
        told = Fetch(rate=1e6, connections_per_host=2, contact="x", allow=("127.0.0.0/8",),
                     resolve=(f"*.test=127.0.0.1:{server.port}",))  # fmt: skip

        async def bare() -> None:
            async def one(session: aiohttp.ClientSession, gate: asyncio.Semaphore, address: str) -> None:
                host, _, path = address.removeprefix("http://").partition("/")
                async with (
                    gate,
                    session.get(f"http://127.0.0.1:{server.port}/{path}", headers={"Host": host}) as answer,
                ):
                    await answer.read()

            async with aiohttp.ClientSession(auto_decompress=False) as session:
                gate = asyncio.Semaphore(64)
                await asyncio.gather(*(one(session, gate, address) for address in addresses))

        async def ours() -> None:
            with tempfile.TemporaryDirectory() as robots:
                async with Fetcher(told, Path(robots)) as fetcher:
                    found = await fetcher.all([WantedAddress(one) for one in addresses], lambda _: None)
                    assert not [one.reason for one in found if one.reason]

        least, taken = cpu(lambda: asyncio.run(bare()), rounds), cpu(lambda: asyncio.run(ours()), rounds)
        server.shutdown()
    return {"pictures": len(addresses), "floor_a_second": round(len(addresses) / least),
            "ours_a_second": round(len(addresses) / taken), "share_of_floor": round(least / taken, 3)}  # fmt: skip


def keep(rows: int) -> dict[str, float]:
    """Measure the choice of pairs without looking for near copies, which benchmarks.near_copies measures."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, rows // 2, rows).astype(np.uint64)
    pairs = Pairs(pictures, np.zeros((rows, 4), np.uint64), rng.integers(0, rows, rows).astype(np.uint64),
                  rng.integers(0, rows, rows).astype(np.uint64), rng.integers(0, 10_000, rows).astype(np.uint64),
                  rng.random(rows).astype(np.float32), rng.integers(0, 5, rows).astype(np.uint8))  # fmt: skip
    before = _used()
    kept = int((choose(pairs, 10, None, None) == KEPT).sum())
    return {"pairs": rows, "kept": kept, "cpu_seconds": round(_used() - before, 1),
            "peak_mebibytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)}  # fmt: skip


RUN = """
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from diptych_mine.run import Mine
from diptych_mine.settings import MiningSettings
from diptych.runtime.processes import peak_memory
workers, out, *given = sys.argv[1:]
if __name__ == "__main__":
    with peak_memory() as peak:
        with redirect_stdout(StringIO()):
            Mine(Path(out), [Path(one) for one in given], MiningSettings(offline=True), workers=int(workers)).run()
    print(peak[0])
"""
NOTHING = """
from diptych.runtime.engine import run
if __name__ == "__main__":
    assert len(list(run(dict.fromkeys, ["a", "b"], "{engine}"))) == 2
"""


def engines(warcs: list[Path]) -> dict[str, float]:
    """Measure a run in a process of its own, with all imports, and what starting Ray costs."""
    found: dict[str, float] = {"shards": len(warcs)}
    with tempfile.TemporaryDirectory() as out:
        before, start = _used(), time.perf_counter()
        _in_a_process(RUN, "1", f"{out}/out", *map(str, warcs))
        found["local_cpu_seconds"] = round(_used() - before, 2)
        found["local_seconds"] = round(time.perf_counter() - start, 2)
    if ray := _start("ray"):
        found["ray_start_cpu_seconds"] = round(ray - _start("local"), 2)
    return found


def _start(engine: str) -> float:
    """Return the CPU seconds of a process with two empty shards; 0 if the engine did not start."""
    try:
        return cpu(lambda: _in_a_process(NOTHING.format(engine=engine)), 3)
    except subprocess.CalledProcessError:  # Ray does not start on a busy machine
        return 0.0


def memory(warcs: list[Path]) -> dict[str, float]:
    found = {}
    for name, some in (("tenth", warcs[: max(2, len(warcs) // 10)]), ("all", warcs)):
        with tempfile.TemporaryDirectory() as out:
            held = _in_a_process(RUN, "2", f"{out}/out", *map(str, some))
        found |= {f"{name}_shards": len(some), f"{name}_mebibytes": round(float(held))}
    return found | {"all_beside_tenth": round(found["all_mebibytes"] / found["tenth_mebibytes"], 3)}


def _in_a_process(script: str, *given: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:  # a file, because its child processes read it again
        path = Path(scratch) / "script.py"
        path.write_text(script)
        return subprocess.run([sys.executable, path, *given], check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument(
        "--web", type=Path, help="folder made by `diptych storybook web` (default: draw one of --pages pages)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--only", help="some of the parts, separated by commas; saved figures of the others are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.web or Path(scratch) / "web"
        if options.web is None:
            web.write(folder, options.pages)
        warcs = sorted((folder / "warc").glob("*"))
        parts: dict[str, Callable[[], dict[str, float]]] = {
            "pages": lambda: pages(warcs[0], options.rounds),
            "pages_of_56_kilobytes": lambda: pages(large(warcs[0], Path(scratch) / "large.warc.gz"), options.rounds),
            "decode": lambda: decode(warcs[0], options.rounds),
            "fetch": lambda: fetch(folder, options.rounds),
            "engines": lambda: engines(warcs[:2]),
            "memory": lambda: memory(warcs),
            "keep": lambda: keep(options.pairs),
        }
        wanted = options.only.split(",") if options.only else list(parts)
        if unknown := sorted(set(wanted).difference(parts)):
            parser.error(f"unknown --only {', '.join(unknown)}; choose from {', '.join(parts)}")
        before = json.loads((RESULTS / "mine_speed.json").read_text("utf-8"))["figures"] if options.only else {}
        measured = {name: parts[name]() for name in wanted}
        figures = {name: (before | measured)[name] for name in parts if name in before | measured}
    save_result("mine_speed", "uv run python -m benchmarks.mine_speed", figures)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
