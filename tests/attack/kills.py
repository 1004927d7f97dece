"""Kills, full disks and signals, at an operation of the disk or at a random instant; then the same command, given
again, must end with 0 and leave byte for byte what an undisturbed one leaves."""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Literal

from tests.attack.forks import HUNG, attempt
from tests.attack.shim import COUNTED, install
from tests.attack.verbs import Verb, digests

Way = Literal["operation", "instant", "full disk", "signal"]
BEGUN = 0.3  # seconds, before which a signal may come before the command line has begun to listen


@dataclass(frozen=True)
class Undisturbed:
    """What a verb leaves, in how many operations and seconds."""

    files: dict[str, str]
    operations: int
    seconds: float


@dataclass(frozen=True)
class Broken:
    """One attempt that did not hold."""

    what: str
    seed: str
    how: str


def undisturbed(verb: Verb, world: Path, place: Path) -> Undisturbed:
    """Raises RuntimeError where it does not end with 0, or where two runs differ."""
    found = []
    for number in range(2):
        folder = copied(world, place)
        began = time.monotonic()
        ended = attempt(folder, verb.arguments, partial(install, None) if number else None)
        seconds = time.monotonic() - began
        if ended.code != 0:
            raise RuntimeError(f"diptych {' '.join(verb.arguments)}: {ended.code}\n{ended.error}")
        found.append(digests(folder / verb.writes))
    operations = int((folder / COUNTED).read_text())
    if found[0] != found[1]:
        differ = sorted(name for name in found[0] | found[1] if found[0].get(name) != found[1].get(name))
        raise RuntimeError(f"{verb.name}: two runs differ in {', '.join(differ)}")
    return Undisturbed(found[0], operations, seconds)


def broken_by(verb: Verb, way: Way, seed: str, whole: Undisturbed, world: Path, place: Path) -> Broken | None:
    """One attempt, drawn by its seed; None where it held."""
    rng, folder = Random(seed), copied(world, place)
    at = rng.randrange(1, whole.operations + 1)
    where = f"{way} {at} of {whole.operations}"
    if way == "signal":
        number, group = rng.choice((signal.SIGTERM, signal.SIGINT)), rng.random() < 0.5
        after, times = rng.uniform(0.0, whole.seconds), rng.choice((1, 2)) if number == signal.SIGTERM else 1
        ended = attempt(folder, verb.arguments, after=after, signals=(number,) * times, group=group)
        where = f"{number.name} {times} times to the {'group' if group else 'process'} after {after:.2f} s"
        # Before the command line listened, nothing was written either.
        early = (after < BEGUN and ended.code in (1, 70)) or (
            ended.code == -number and "Traceback" not in ended.error and not (folder / verb.writes).exists()
        )
        unheard = not verb.saves and ended.code == -signal.SIGTERM and not ended.error.count("Traceback")
        if not (ended.clean or early or unheard):
            return Broken(verb.name, seed, f"{where}: code {ended.code}, {ended.last}")
    elif way == "instant":
        where = way
        ended = attempt(folder, verb.arguments, after=rng.uniform(0.0, whole.seconds))
    else:
        ended = attempt(folder, verb.arguments, partial(install, at, "kill" if way == "operation" else "full"))
    if ended.code == HUNG:
        return Broken(verb.name, seed, f"{where}: hung")
    if way == "full disk" and not ended.clean:
        return Broken(verb.name, seed, f"{where}: code {ended.code}, {ended.last}")
    again = attempt(folder, verb.arguments)
    if again.code != 0:
        return Broken(verb.name, seed, f"{where}: then code {again.code}, {again.last}")
    files = digests(folder / verb.writes)
    differ = sorted(name for name in files | whole.files if files.get(name) != whole.files.get(name))
    if way == "signal":  # it keeps the step that it stopped at, in place of another; the model is the same
        differ = [name for name in differ if not name.startswith("checkpoints/")]
    return Broken(verb.name, seed, f"{where}: then {', '.join(differ[:3])} differ") if differ else None


def copied(world: Path, place: Path) -> Path:
    """The world, as it was made."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(world, place, symlinks=True)
    return place
