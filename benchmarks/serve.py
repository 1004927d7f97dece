"""A service under load, beside `diptych caption FOLDER` in the same run: pictures a second, waits, refusals, memory.

    uv run python -m benchmarks.serve MODEL PICTURES

MODEL is a folder that captions (the demo's `caption`), PICTURES a folder. `diptych serve` runs in a process of its own.
So many clients ask in a closed loop: each sends its next picture when the last is answered, and waits as long as
Retry-After says. Then hostile clients try to harm it, and a good one is timed. Writes benchmarks/results/serve.json.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections import Counter
from itertools import count, cycle
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import numpy as np
import psutil

from benchmarks.machine import save_result
from diptych.vision.pictures import find_pictures

CLIENTS = (1, 8, 32, 128)
SECONDS = 10.0
COMMAND_PICTURES = 160
GARBAGE = 200


def serve(model: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "diptych.cli", "serve", str(model), "--port", "0"]
    log = Path("/tmp/benchmarks-serve.log")
    process = subprocess.Popen(command, stderr=log.open("w"), text=True)
    for _ in range(600):
        if found := re.search(r"serving on (http://\S+) ", log.read_text()):
            return process, found[1]
        time.sleep(0.1)
    raise SystemExit(f"no service came up: {log.read_text()}")


def command_line(model: Path, pictures: list[Path], folder: Path) -> float:
    """Pictures a second of `diptych caption FOLDER`, without the seconds of its start."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, picture in zip(range(COMMAND_PICTURES), cycle(pictures), strict=False):
        (folder / f"{number}{picture.suffix}").write_bytes(picture.read_bytes())
    command = [sys.executable, "-m", "diptych.cli", "caption", str(folder), "--model", str(model)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    times = [time.perf_counter() for _ in process.stdout]
    process.wait()
    return (len(times) - 16) / (times[-1] - times[15])  # a batch of 16 comes at once


async def load(url: str, contents: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """A closed loop."""
    waits: list[float] = []
    statuses: Counter[int] = Counter()
    turns, until = count(), time.perf_counter() + seconds

    async def client(asks: httpx2.AsyncClient) -> None:
        while time.perf_counter() < until:
            files = {"image": ("a.png", contents[next(turns) % len(contents)])}
            begun = time.perf_counter()
            answer = await asks.post(f"{url}/v1/caption", files=files)
            statuses[answer.status_code] += 1
            if answer.status_code == 200:
                waits.append(time.perf_counter() - begun)
            else:
                await asyncio.sleep(float(answer.headers.get("retry-after", "1")))

    limits = httpx2.Limits(max_connections=clients)
    async with httpx2.AsyncClient(timeout=60, limits=limits, trust_env=False) as asks:
        begun = time.perf_counter()
        await asyncio.gather(*(client(asks) for _ in range(clients)))
        took = time.perf_counter() - begun
    p50, p95, p99 = (1000 * float(part) for part in np.percentile(waits, (50, 95, 99)))
    return {
        "pictures a second": round(len(waits) / took, 1),
        "p50 ms": round(p50),
        "p95 ms": round(p95),
        "p99 ms": round(p99),
        "answered": statuses[200],
        "refused with 503": statuses[503],
        "other failures": sum(statuses.values()) - statuses[200] - statuses[503],
    }


async def harm(url: str, content: bytes) -> dict[str, Any]:
    """Half requests that stay open, garbage and damaged pictures; then the seconds of a good request."""
    host, port = url.removeprefix("http://").split(":")
    held = [await asyncio.open_connection(host, int(port)) for _ in range(50)]
    for number, (_, writer) in enumerate(held):
        head = b"POST /v1/caption HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"
        writer.write(head[: len(head) * number // 50])
    rng, statuses = Random(0), Counter[int]()
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as asks:
        for number in range(GARBAGE):
            damaged = bytearray(content)
            for _ in range(rng.randint(1, 40)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            body = bytes(damaged) if number % 2 else rng.randbytes(rng.randrange(2000))
            answer = await asks.post(f"{url}/v1/caption", files={"image": ("a.png", body)})
            statuses[answer.status_code] += 1
        begun = time.perf_counter()
        good = await asks.post(f"{url}/v1/caption", files={"image": ("a.png", content)})
        took = time.perf_counter() - begun
    for _, writer in held:
        writer.close()
    assert good.status_code == 200
    assert 500 not in statuses
    return {
        "garbage and damaged pictures": GARBAGE,
        "refused": GARBAGE - statuses[200],
        "answered as a picture all the same": statuses[200],
        "faults (500)": statuses[500],
        "half requests held open": len(held),
        "a good request afterwards, ms": round(1000 * took),
    }


def main(model: Path, folder: Path) -> None:
    pictures = find_pictures(folder)
    contents = [picture.read_bytes() for picture in pictures]
    alone = command_line(model, pictures, Path("/tmp/benchmarks-serve-pictures"))
    process, url = serve(model)
    try:
        memory = psutil.Process(process.pid)
        asyncio.run(load(url, contents, 8, 3.0))
        before = memory.memory_info().rss
        found = {str(clients): asyncio.run(load(url, contents, clients, SECONDS)) for clients in CLIENTS}
        again = command_line(model, pictures, Path("/tmp/benchmarks-serve-pictures"))
        hostile = asyncio.run(harm(url, contents[0]))
        after = memory.memory_info().rss
    finally:
        process.terminate()
        code = process.wait(30)
    beside = (alone + again) / 2
    figures = {
        "seconds of each load": SECONDS,
        "the command line over the folder, pictures a second": [round(alone, 1), round(again, 1)],
        "clients": found,
        "32 clients over the command line (goal 0.85)": round(found["32"]["pictures a second"] / beside, 2),
        "hostile": hostile,
        "memory, MiB": {"before the loads": before >> 20, "after all": after >> 20},
        "exit code after SIGTERM": code,
    }
    print(save_result("serve", f"uv run python -m benchmarks.serve {model} {folder}", figures).read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
