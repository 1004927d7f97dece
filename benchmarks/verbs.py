"""Measure how the cost of verbs grows with a store: check, evaluate and augment, each in its own process.

    OMP_WAIT_POLICY=passive uv run python -m benchmarks.verbs

The stores have 10 to 10,000 different records (`check`: to 100,000) of 10 regions with 64 features and a caption.
The models are small, and trained for one step. `MiB` is the peak of the process with the pages of mapped files, so a
part of it is shared and can be freed. On ten records, almost all time is that of the start. Saves to scale.json.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import save_result
from benchmarks.scale import measured, small_regions
from diptych.core import FeatureContract, Record
from diptych.data.store.store import StoreWriter

COMMAND = "OMP_WAIT_POLICY=passive uv run python -m benchmarks.verbs"
SIZES, CHECKED = (10, 1_000, 10_000), (100_000,)  # CHECKED: for `check` alone
WORDS = ("red", "dog", "on", "blue", "boat", "near", "old", "green", "house", "with", "two", "white", "cats")


def records(count: int) -> Iterator[Record]:
    """Yield different records, each with a caption of six words."""
    drawn = [small_regions(number) for number in range(1000)]
    for number in range(count):
        caption = " ".join(WORDS[(number * step + step) % len(WORDS)] for step in (1, 3, 5, 7, 11, 13))
        yield Record(str(number), captions=(caption,), regions=drawn[number % 1000])


def store(folder: Path, count: int) -> Path:
    with StoreWriter(folder, FeatureContract("given", "", 64), 1000) as writer:
        for record in records(count):
            writer.add(record)
    return folder


def cost(*words: object) -> dict[str, float]:
    """Return CPU seconds, wall seconds and peak MiB of `diptych WORDS`."""
    begun = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "diptych", *map(str, words)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
    assert child.stderr is not None
    said = child.stderr.read().decode()
    _, status, used = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # check: 1 if training would fail
        raise SystemExit(f"diptych {' '.join(map(str, words))}: {said[-2000:]}")
    return {"CPU s": round(used.ru_utime + used.ru_stime, 1), "s": round(time.perf_counter() - begun, 1),
            "MiB": round(used.ru_maxrss / 1024)}  # fmt: skip


def trained(root: Path, data: Path, task: str, system: str) -> Path:
    out = root / f"{system}-{task}"
    cost("finetune", task, "--from-scratch", "--recipe", f"{system}/small/{task}", "--data", data, "--out", out,
         "--steps", 1, "--set", "training.validate_every=null")  # fmt: skip
    return out


def main() -> None:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        first = store(root / "first", 1_000)
        captioner, ranker = trained(root, first, "caption", "unified-vlp"), trained(root, first, "retrieval", "tden")
        for count in (*SIZES, *CHECKED):
            data = store(root / str(count), count)
            verbs: dict[str, list[object]] = {"check": ["check", data]}
            if count in SIZES:
                scored, more = ["--data", data, "--split", "train"], ["--out", root / f"{count}-more"]
                verbs |= {
                    "evaluate, captions": ["evaluate", "--model", captioner, *scored],
                    "evaluate, retrieval": ["evaluate", "--model", ranker, *scored],
                    "augment": ["augment", data, *more, "--model", captioner, "--num-captions", 1],
                }
            for name, words in verbs.items():
                found.setdefault(name, {})[str(count)] = cost(*words)
            print(count, {name: of[str(count)] for name, of in found.items() if str(count) in of}, flush=True)
            save_result("scale", COMMAND, measured() | {"verbs": found})


if __name__ == "__main__":
    main()
