"""Measure a service under load, against `diptych caption FOLDER`: images per second, latency, refusals, memory.

    uv run python -m benchmarks.serve MODEL PICTURES [--requests 20000]

MODEL is the folder of a caption model (such as the demo's `caption`). PICTURES is a folder, whose images are sent in
four sizes. `diptych serve` runs in a separate process. Each of N clients waits for its answer before it sends the next
image; after a 503 it waits as long as Retry-After demands. The command line and each load run in turn for several
rounds, and figures are medians. The clients share the cores with the service, so their CPU time is reported. Writes
benchmarks/results/serve.json.

With `--requests N` nothing is timed: 32 clients send N requests, and the memory of the process is read meanwhile. This
works on any machine and writes benchmarks/results/serve_memory.json. For hostile clients see `benchmarks.faults`.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from PIL import Image

from benchmarks.clients import Tally, closed_loop, form
from benchmarks.machine import save_result
from diptych.vision.image_files import find_pictures

CLIENTS = (1, 8, 32, 128)
SECONDS = 5.0  # duration of each load
ROUNDS = 3
BATCH = 16  # batch size of the command line, and largest batch of a service
PICTURES = 20 * BATCH  # number of images that the command line captions
SIZES = (160, 320, 640, 1280)  # pixels of the longer side; the smallest are PNG, the others JPEG
SAMPLES = 40  # how often memory is read


@contextmanager
def serving(*words: str) -> Iterator[tuple[psutil.Process, tuple[str, int]]]:
    """Run `diptych serve` with these arguments. Yield its process and its address, then end it by SIGTERM; it must exit
    with 0."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [sys.executable, "-m", "diptych.cli", "serve", *words, "--port", "0"]
        process = subprocess.Popen(command, stderr=log.open("w"), text=True)
        try:
            while not (found := re.search(r"serving on http://(\S+):(\d+) ", log.read_text())):
                if process.poll() is not None:
                    raise SystemExit(f"diptych serve ended before it accepted requests: {log.read_text()}")
                time.sleep(0.1)
            yield psutil.Process(process.pid), (found[1], int(found[2]))
        finally:
            process.terminate()
            code = process.wait(30)
    assert code == 0, f"diptych serve exited with {code}, expected 0"


def sized(pictures: list[Path]) -> list[bytes]:
    """Return the encoded images, resized in turn to the sizes of `SIZES`."""
    made = []
    for path, size in zip(pictures, cycle(SIZES), strict=False):
        with Image.open(path) as image:
            share = size / max(image.size)
            shape = (round(image.width * share), round(image.height * share))
            resized, content = image.convert("RGB").resize(shape), io.BytesIO()
        resized.save(content, "PNG" if size == SIZES[0] else "JPEG", quality=90)
        made.append(content.getvalue())
    return made


def command_line(model: Path, folder: Path) -> dict[str, float]:
    """Return the rate of `diptych caption FOLDER`, without its first and last batch."""
    command = [sys.executable, "-m", "diptych.cli", "caption", str(folder), "--model", str(model)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watched, marks = psutil.Process(process.pid), []
    assert process.stdout is not None
    for number, _ in enumerate(process.stdout, 1):
        if number in (BATCH, PICTURES - BATCH):  # the results of a batch arrive together
            marks.append((time.perf_counter(), spent(watched)))
    process.wait()
    (begun, cpu), (ended, cpu_then) = marks
    pictures = PICTURES - 2 * BATCH
    return {
        "pictures a second": pictures / (ended - begun),
        "CPU ms of a picture": 1000 * (cpu_then - cpu) / pictures,
    }


def load(service: psutil.Process, address: tuple[str, int], requests: list[bytes], clients: int) -> dict[str, float]:
    before = spent(service)
    tally = asyncio.run(closed_loop(address, requests, clients, SECONDS))
    cpu, answered = spent(service) - before, len(tally.waits)
    p50, p95, p99 = (1000 * float(part) for part in np.percentile(tally.waits, (50, 95, 99)))
    return {
        "pictures a second": answered / tally.took,
        "p50 ms": p50,
        "p95 ms": p95,
        "p99 ms": p99,
        "CPU ms of a picture": 1000 * cpu / answered,
        "CPU ms of a picture, the client's": 1000 * tally.clients_cpu / answered,
        "share answered": answered / total(tally),
        "other failures than 503": total(tally) - answered - tally.statuses[503],
    }


def total(tally: Tally) -> int:
    return sum(tally.statuses.values())


def spent(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its children, including children that have ended."""
    own = process.cpu_times()
    seconds = own.user + own.system + own.children_user + own.children_system
    for child in process.children():
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            seconds += times.user + times.system
    return float(seconds)


def memory(
    service: psutil.Process, address: tuple[str, int], requests: list[bytes], count: int
) -> Iterator[dict[str, int | float | list[int]]]:
    """Yield the memory in MiB after each of `SAMPLES` equal parts of `count` requests. The rise is relative to the
    first tenth."""
    seen = []
    for part in range(1, SAMPLES + 1):
        tally = asyncio.run(closed_loop(address, requests, 32, most=count // SAMPLES))
        assert set(tally.statuses) <= {200, 503}
        seen.append(service.memory_info().rss >> 20)
        rise = max(seen) / seen[min(part, SAMPLES // 10) - 1] - 1
        yield {"requests": count // SAMPLES * part, "MiB": seen, "rise after the first tenth": round(rise, 4)}


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(f"{median(one[name] for one in rounds):.3g}") for name in rounds[0]}


def loads(model: Path, folder: Path) -> None:
    contents = sized(find_pictures(folder)[:PICTURES])
    requests = [form(content) for content in contents]
    alone: list[dict[str, float]] = []
    found: dict[str, list[dict[str, float]]] = {str(clients): [] for clients in CLIENTS}
    with tempfile.TemporaryDirectory() as written, serving(str(model)) as (service, address):
        for number, content in enumerate(islice(cycle(contents), PICTURES)):
            Path(written, f"{number:04}.png").write_bytes(content)  # JPEG too: the first bytes identify the format
        started = service.memory_info().rss >> 20
        load(service, address, requests, BATCH)
        for _ in range(ROUNDS):
            for clients in CLIENTS:
                if clients == 32:
                    alone.append(command_line(model, Path(written)))
                found[str(clients)].append(load(service, address, requests, clients))
        ratios = [
            round(there["pictures a second"] / here["pictures a second"], 2)
            for there, here in zip(found["32"], alone, strict=True)
        ]
        figures: dict[str, Any] = {
            "seconds of each load": SECONDS,
            "rounds": ROUNDS,
            "longer sides of the pictures": SIZES,
            "the command line over the folder": medians(alone),
            "clients": {clients: medians(rounds) for clients, rounds in found.items()},
            "32 clients over the command line (goal 0.85)": median(ratios),
            "the same in each round": ratios,
            "memory, MiB": {"at the start": started, "after the loads": service.memory_info().rss >> 20},
        }
    print(save_result("serve", f"uv run python -m benchmarks.serve {model} {folder}", figures).read_text())


def memories(model: Path, folder: Path, count: int) -> None:
    requests = [form(content) for content in sized(find_pictures(folder)[:PICTURES])]
    command = f"uv run python -m benchmarks.serve {model} {folder} --requests {count}"
    with serving(str(model)) as (service, address):
        for figures in memory(service, address, requests, count):  # saved each time, in case of an interruption
            written = save_result("serve_memory", command, figures)
    print(written.read_text())


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model", type=Path)
    words.add_argument("pictures", type=Path)
    words.add_argument("--requests", type=int, default=0)
    given = words.parse_args()
    if given.requests:
        memories(given.model, given.pictures, given.requests)
    else:
        loads(given.model, given.pictures)
