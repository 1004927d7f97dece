"""Many training steps, and what memory the process has on the way: it does not grow."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.attack.forks import Child, begin, ended, wait
from tests.attack.kills import Broken, copied
from tests.attack.verbs import TINY

STEPS, WARM = 20_000, 2_000
MOST = 1.02
SYSTEMS = ("unified-vlp", "xgpt", "vl-bert", "image-bert", "tden")
LAYERS = "model.layers=1"
OF_TDEN = ("model.object_layers=1", "model.sentence_layers=1", "model.cross_layers=1", "model.decoder_layers=1",
           "model.similarity_width=16")  # fmt: skip
HOUR = 3600.0


def flat(number: int, world: Path, place: Path, steps: int = STEPS, warm: int = WARM) -> Broken | str:
    """One system after the other. The most of the last tenth is held against the most of the tenth after `warm`."""
    system, folder = SYSTEMS[number % len(SYSTEMS)], copied(world, place)
    arguments = ("pretrain", f"{system}/small/pretrain", "--data", "store", "--out", "run", *_sizes(system))
    more = {"training.steps": steps, "training.checkpoint_every": steps // 4, "training.validate_every": "null",
            "training.log_every": 10}  # fmt: skip
    child = begin(folder, (*arguments, *(word for key, value in more.items() for word in ("--set", f"{key}={value}"))))
    try:
        seen = _watched(child, folder / "run" / "metrics.jsonl")
    finally:
        if child.code is None:
            os.killpg(child.pid, signal.SIGKILL)
            wait(child, HOUR)
    told = ended(child)
    if told.code != 0:
        return Broken("memory", system, f"{system}: code {told.code}, {told.last}")
    early = [memory for step, memory in seen if warm <= step < warm + steps // 10]
    late = [memory for step, memory in seen if step >= steps - steps // 10]
    if not early or not late:
        return Broken("memory", system, f"{system}: {len(seen)} looks, too few")
    grown, words = max(late) / max(early), f"{system}: {max(early):.0f} MiB, then {max(late):.0f} after {steps} steps"
    return Broken("memory", system, words) if grown > MOST else words


def _sizes(system: str) -> tuple[str, ...]:
    if system != "tden":
        return TINY
    at = TINY.index(LAYERS)
    return (*TINY[: at - 1], *TINY[at + 1 :], *(word for size in OF_TDEN for word in ("--set", size)))


def _watched(child: Child, log: Path) -> list[tuple[int, float]]:
    """Steps and MiB."""
    seen: list[tuple[int, float]] = []
    while not wait(child, 0.5):
        step = _step(log)
        memory = _resident(child.pid)
        if step is not None and memory is not None:
            seen.append((step, memory))
    return seen


def _step(log: Path) -> int | None:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 2000))
            lines = file.read().decode().splitlines()
        return int(json.loads(lines[-2])["step"]) if len(lines) > 1 else None
    except (OSError, ValueError, KeyError):
        return None


def _resident(pid: int) -> float | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), None)
