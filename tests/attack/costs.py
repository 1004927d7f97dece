"""Files that cost far more than their size, given to every verb that reads images or features: a bounded time and \
memory, and a sentence."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.hostile_images import image, jpeg_of_many_scans, plain_ppm, tiff_of_one_tile
from tests.attack.forks import HUNG, attempt
from tests.attack.kills import Broken, copied

SECONDS = 60  # by the clock, on a busy machine
MEMORY = 4 * 2**30  # bytes that a command may have in all: half of them are torch's libraries


def _written(content: Callable[[], bytes], path: Path) -> None:
    path.write_bytes(content())


HOSTILE: dict[str, Callable[[Path], None]] = {
    "scans.jpg": partial(_written, partial(jpeg_of_many_scans, 6000, 200)),
    "fewer-scans.jpg": partial(_written, partial(jpeg_of_many_scans, 7900, 14)),
    "tile.tif": partial(_written, partial(tiff_of_one_tile, 20000)),
    "text.ppm": partial(_written, partial(plain_ppm, 1700, 1600)),
    "large.png": partial(_written, partial(image, 9000)),
}
COMMANDS = (
    ("extract", "bomb.jsonl", "--out", "again", "--detector", "detector", "--processes", "1"),
    ("check", "bomb.jsonl"),
    ("mine", "judge", "classes", "--out", "judge"),
    ("caption", "FILE", "--model", "captioner"),
    ("search", "a dog", "--images", "bombs", "--model", "retriever", "--cache", "found"),
)


def bounded(number: int, world: Path, place: Path) -> Broken | None:
    """One command on one file. What breaks: a traceback, a signal, more time or more memory than it may take."""
    name, write = list(HOSTILE.items())[number % len(HOSTILE)]
    arguments = COMMANDS[number // len(HOSTILE) % len(COMMANDS)]
    folder = copied(world, place)
    (folder / "bombs").mkdir()
    write(folder / "bombs" / name)
    shutil.copy(folder / "bombs" / name, folder / "classes" / "safe" / name)
    (folder / "bomb.jsonl").write_text(json.dumps({"image": f"bombs/{name}", "captions": ["a dog"]}) + "\n")
    words = tuple(f"bombs/{name}" if word == "FILE" else word for word in arguments)
    limited = partial(resource.setrlimit, resource.RLIMIT_DATA, (MEMORY, MEMORY))
    ended = attempt(folder, words, limited, seconds=SECONDS)
    if ended.clean:
        return None
    how = "hung" if ended.code == HUNG else f"code {ended.code}, {ended.last}"
    return Broken("costs", f"{number}: {name}", f"{' '.join(words)[:80]} on {name}: {how}")
