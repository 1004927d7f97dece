"""Measure how many scenes per second are drawn on one core, and the time of each part: layout, image, texts, PNG.

    uv run python -m benchmarks.storybook

Each round draws new scenes. Before timing, 4,000 scenes fill the caches of drawings, as in a long run. Figures are
medians of five rounds of 1,000 scenes. Writes benchmarks/results/storybook.json.
"""

import io
import statistics
import time
from collections.abc import Callable
from typing import Any

from PIL import Image

from benchmarks.machine import save_result
from diptych_world.book import Storybook, record
from diptych_world.render import render
from diptych_world.world import Scene

WARM_UP, ROUND, ROUNDS = 4000, 1000, 5


def measured() -> dict[str, Any]:
    """Return the CPU milliseconds per scene of each part, and the scenes per second with empty and with filled
    caches."""
    book = Storybook(0, "train", WARM_UP + ROUND * ROUNDS)
    start = time.process_time()
    for scene in book[:ROUND]:
        render(scene)
        record(scene)
    cold = ROUND / (time.process_time() - start)
    for number in range(ROUND, WARM_UP):
        render(book[number])
    rounds = [_round(book, WARM_UP + ROUND * number) for number in range(ROUNDS)]
    parts = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    whole = statistics.median(one["scene"] + one["render"] + one["words"] for one in rounds)
    return {
        "scenes_per_second": round(1000 / whole),
        "scenes_per_second_first_1000": round(cold),
        "milliseconds": {name: round(value, 3) for name, value in parts.items()},
        "wanted_scenes_per_second": 500,
    }


def _round(book: Storybook, first: int) -> dict[str, float]:
    numbers = range(first, first + ROUND)
    scenes: list[Scene] = []
    pictures: list[Any] = []
    return {
        "scene": _timed(lambda: scenes.extend(book[number] for number in numbers)),
        "render": _timed(lambda: pictures.extend(render(scene) for scene in scenes)),
        "words": _timed(lambda: [record(scene) for scene in scenes]),
        "png": _timed(lambda: [_png(picture) for picture in pictures]),
    }


def _png(picture: Any) -> None:
    Image.fromarray(picture).save(io.BytesIO(), format="PNG", compress_level=1)


def _timed(work: Callable[[], object]) -> float:
    """Return the CPU milliseconds of `work`, divided by the number of scenes in a round."""
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1000 / ROUND


if __name__ == "__main__":
    figures = measured()
    print(figures)
    save_result("storybook", "uv run python -m benchmarks.storybook", figures)
