"""Measure what hostile clients cost the others: 43 clients alone, and the same with 21 hostile ones, in turn.

    uv run --group dev python -m benchmarks.serve_hostile MODEL PICTURES

MODEL is the folder of a caption model, PICTURES a folder. A hostile client sends its next request as soon as the last
is answered. It sends images that cost far more to decode than their size, JSON of a million items, damaged images, and
requests that are not HTTP. CPU milliseconds are those of the service and its decoders, divided by the images of the
good clients. Images per second also depend on other programs on the machine.

The goal: good clients keep 80% of their images per second. Their requests may only fail with 503 and Retry-After.
Writes benchmarks/results/serve_hostile.json.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from benchmarks.clients import Connection, Tally, closed_loop, form, post
from benchmarks.hostile_images import jpeg_of_many_scans, plain_ppm, tiff_of_one_tile
from benchmarks.machine import save_result
from benchmarks.serve import PICTURES, serving, sized, spent
from diptych.vision.image_files import find_pictures

GOOD, HOSTILE = 43, 21
SECONDS, ROUNDS = 5.0, 9


def hostile_requests() -> list[bytes]:
    """Return one request of each hostile kind."""
    items = b'{"question": [' + b"1," * 1_000_000 + b"1]}"
    return [
        form(jpeg_of_many_scans(6000, 200)),
        form(jpeg_of_many_scans(2000, 15)),  # few enough scans to be decoded, as an ordinary file
        form(tiff_of_one_tile(9000)),
        form(plain_ppm(1100, 1000)),
        form(jpeg_of_many_scans(2000, 10)[:-5000]),
        post("/v1/ask", items, "application/json"),
        post("/v1/ask", b'{"a": ' + b"[" * 400_000, "application/json"),
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ]


async def attack(address: tuple[str, int], requests: list[bytes], seconds: float, statuses: Counter[int]) -> None:
    async def client(first: int) -> None:
        until, connection = time.perf_counter() + seconds, Connection(*address)
        for request in islice(cycle(requests), first, None):
            if time.perf_counter() > until:
                break
            with suppress(OSError, asyncio.IncompleteReadError):
                statuses[(await connection.ask(request)).status] += 1
                continue
            connection.close()
        connection.close()

    await asyncio.gather(*(client(number) for number in range(HOSTILE)))


def load(address: tuple[str, int], requests: list[bytes], bad: list[bytes] | None) -> tuple[Tally, Counter[int]]:
    """Run the clients; return the tally of the good ones, and the number of responses to the hostile ones by status."""
    statuses = Counter[int]()

    async def both() -> Tally:
        hostile = asyncio.ensure_future(attack(address, bad, SECONDS, statuses)) if bad else None
        tally = await closed_loop(address, requests, GOOD, SECONDS)
        if hostile is not None:
            await hostile
        return tally

    return asyncio.run(both()), statuses


def main(model: Path, folder: Path) -> None:
    good, bad = [form(content) for content in sized(find_pictures(folder)[:PICTURES])], hostile_requests()
    speeds: dict[str, list[float]] = {"alone": [], "with hostile clients": []}
    costs: dict[str, list[float]] = {name: [] for name in speeds}
    failed, refused, hostile = 0, 0, Counter[int]()
    with serving(str(model)) as (process, address):
        load(address, good, None)
        for _ in range(ROUNDS):
            for name, found in speeds.items():
                before = spent(process)
                tally, statuses = load(address, good, bad if name != "alone" else None)
                found.append(len(tally.waits) / tally.took)
                costs[name].append(1000 * (spent(process) - before) / max(1, len(tally.waits)))
                refused += tally.statuses[503]
                failed += sum(count for status, count in tally.statuses.items() if status not in (200, 503))
                hostile += statuses
    ratios = [there / alone for alone, there in zip(*speeds.values(), strict=True)]
    figures = {
        "clients": {"good": GOOD, "hostile": HOSTILE},
        "seconds of each load": SECONDS,
        "images a second of the good clients": {name: round(median(found), 1) for name, found in speeds.items()},
        "CPU ms of an image": {name: round(median(found), 1) for name, found in costs.items()},
        "share of their images a second that good clients keep (goal 0.80)": round(median(ratios), 2),
        "the same in each round": [round(ratio, 2) for ratio in ratios],
        "good requests that failed": failed,
        "good requests that were put off (503, Retry-After)": refused,
        "answers to hostile requests, by status": {str(status): hostile[status] for status in sorted(hostile)},
    }
    command = f"uv run --group dev python -m benchmarks.serve_hostile {model} {folder}"
    print(save_result("serve_hostile", command, figures).read_text())


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model", type=Path)
    words.add_argument("pictures", type=Path)
    given = words.parse_args()
    main(given.model, given.pictures)
