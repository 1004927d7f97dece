"""Attack Diptych, and keep a table of what was tried, held and broken.

    uv run python -m tests.attack --rounds 2                   # a seeded minute, as CI does; nothing is kept
    uv run python -m tests.attack --seconds 7200 --keep        # `make attack`: goes on where it was stopped

Attempts are numbered, and a number is an attempt for good: `--only 'extract: operation' --from 17 --rounds 1` makes one
again. What is kept (benchmarks/results/attack.json) says how many of each were tried and held, and which broke. An
attempt of fuzzing is 200 files.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, get_args

from benchmarks.machine import RESULTS, save_result
from tests.attack.flips import READERS, flipped, whole_of
from tests.attack.forks import import_all
from tests.attack.fuzz import FUZZERS
from tests.attack.kills import Broken, Way, broken_by, undisturbed
from tests.attack.verbs import VERBS, make_world

NAME = "attack"
COMMAND = "uv run python -m tests.attack --seconds 7200 --keep"
Try = Callable[[int], Broken | str | None]


def attacks(world: Path, place: Path) -> Iterator[tuple[str, Try]]:
    """Each kind of attack by name; a number makes one attempt. What must be known first is found at the first."""
    for verb in VERBS:
        for way in get_args(Way):
            yield f"{verb.name}: {way}", _killing(verb, way, world, place)
    for reader in READERS:
        yield f"{reader.name}: flipped bit", _flipping(reader, world, place)
    for name, fuzz in FUZZERS.items():
        yield f"{name}: fuzzed", lambda number, fuzz=fuzz: fuzz(number)  # type: ignore[misc]


def _killing(verb: Any, way: Any, world: Path, place: Path) -> Try:
    def one(number: int) -> Broken | None:
        if verb not in WHOLE:
            WHOLE[verb] = undisturbed(verb, world, place)
        return broken_by(verb, way, f"{verb.name}/{way}/{number}", WHOLE[verb], world, place)

    return one


def _flipping(reader: Any, world: Path, place: Path) -> Try:
    def one(number: int) -> Broken | str:
        if reader not in WHOLE:
            WHOLE[reader] = whole_of(reader, world, place)
        return flipped(reader, f"{reader.name}/{number}", WHOLE[reader], world, place)

    return one


WHOLE: dict[Any, Any] = {}


@contextmanager
def prepared() -> Iterator[tuple[Path, Path]]:
    import_all()
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        make_world(Path(folder) / "world")
        yield Path(folder) / "world", Path(folder) / "try"


def run(until: float, rounds: int | None, figures: dict[str, Any], pattern: str, each: Callable[[], object]) -> None:
    """In turn, one attempt of each kind, until the time or the rounds are over; after the attempts that are kept."""
    with prepared() as (world, place):
        chosen = [(name, one) for name, one in attacks(world, place) if pattern in name]
        for turn in count():
            if turn == rounds:
                return
            for name, one in chosen:
                if time.monotonic() > until:
                    return
                row = figures.setdefault(name, {"tried": 0, "held": 0, "broken": []})
                found = one(row["tried"])
                if isinstance(found, Broken):
                    row["broken"].append(row["tried"])
                    print(f"{name} {row['tried']}: {found.how}", flush=True)
                row["tried"] += 1
                row["held"] = row["tried"] - len(row["broken"])
                each()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long at most")
    parser.add_argument("--rounds", type=int, help="attempts of each kind (default: until --seconds are over)")
    parser.add_argument("--keep", action="store_true", help=f"go on after {RESULTS.name}/{NAME}.json, and keep it")
    parser.add_argument("--only", default="", help="part of the names of attacks")
    parser.add_argument("--from", dest="begin", type=int, default=0, help="number of the first attempt of each kind")
    parser.add_argument("--json", type=Path, help="write the table there")
    given = parser.parse_args()
    kept = RESULTS / f"{NAME}.json"
    figures: dict[str, Any] = json.loads(kept.read_text())["figures"] if given.keep and kept.exists() else {}
    if given.rounds is None and given.seconds == math.inf:
        raise SystemExit("give --seconds or --rounds")
    if given.begin:
        names = [name for name, _ in attacks(Path(), Path()) if given.only in name]
        figures = {name: {"tried": given.begin, "held": given.begin, "broken": []} for name in names}
    until = time.monotonic() + given.seconds
    run(until, given.rounds, figures, given.only, lambda: given.keep and save_result(NAME, COMMAND, figures))
    if given.json:
        given.json.write_text(json.dumps(figures))
    for name, row in figures.items():
        print(f"{name}: {row['tried']} tried, {row['held']} held, {len(row['broken'])} broken")
    raise SystemExit(1 if any(row["broken"] for row in figures.values()) else 0)


if __name__ == "__main__":
    main()
