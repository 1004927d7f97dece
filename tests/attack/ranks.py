"""A rank that is lost: the other one ends with a sentence, and the same command then ends as an undisturbed one."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from tests.attack.forks import TOO_LONG, Child, begin, ended, wait
from tests.attack.kills import BEGUN, Broken, Undisturbed, copied
from tests.attack.verbs import TINY, digests

WORLD, GRACE = 2, 10.0
TORCHRUN = 30.0  # seconds after SIGTERM, after which torchrun kills
RUN = ("pretrain", "unified-vlp/small/pretrain", "--data", "store", "--out", "run", *TINY, "--set",
       "training.steps=12")  # fmt: skip


def whole_of_ranks(world: Path, place: Path) -> Undisturbed:
    folder, began = copied(world, place), time.monotonic()
    children = _together(folder)
    if not all(wait(child, TOO_LONG) for child in children) or any(child.code for child in children):
        raise RuntimeError(f"two ranks: {[ended(child) for child in children]}")
    return Undisturbed(digests(folder / "run"), 0, time.monotonic() - began)


def lost(seed: str, whole: Undisturbed, world: Path, place: Path) -> Broken | None:
    """One of two, by SIGKILL, at an instant; the other gets SIGTERM where it waits still, as torchrun sends it."""
    rng, folder = Random(seed), copied(world, place)
    children, which, after = _together(folder), rng.randrange(WORLD), rng.uniform(0.0, whole.seconds)
    where = f"rank {which} after {after:.2f} s"
    if not wait(children[which], after):
        with suppress(ProcessLookupError):  # not yet a group of its own
            os.killpg(children[which].pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(children[which].pid, signal.SIGKILL)
    for child in children:
        if not wait(child, GRACE):
            os.kill(child.pid, signal.SIGTERM)
        if not wait(child, TORCHRUN):
            os.killpg(child.pid, signal.SIGKILL)
            wait(child, TOO_LONG)
            return Broken("ranks", seed, f"{where}: the other hung")
    told = ended(children[1 - which])
    ended(children[which])
    if not told.clean and not (told.code in (-signal.SIGTERM, -signal.SIGKILL) and after < BEGUN):
        return Broken("ranks", seed, f"{where}: the other ended with {told.code}, {told.last}")
    again = _together(folder)
    for child in again:
        if not wait(child, TOO_LONG) or child.code:
            return Broken("ranks", seed, f"{where}: then code {child.code}, {ended(child).last}")
    for child in again:
        ended(child)
    files = digests(folder / "run")
    differ = sorted(name for name in files | whole.files if files.get(name) != whole.files.get(name))
    return Broken("ranks", seed, f"{where}: then {', '.join(differ[:3])} differ") if differ else None


def _together(folder: Path) -> list[Child]:
    """As torchrun starts them: by their environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [begin(folder, RUN, partial(_set_rank, rank, port), f".{rank}") for rank in range(WORLD)]


def _set_rank(rank: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
