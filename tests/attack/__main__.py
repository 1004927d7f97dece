"""Attack Diptych, and keep a table of what was tried, held and broken.

    uv run python -m tests.attack --rounds 1 --without memory  # seeded minutes, as CI does; nothing is kept
    uv run python -m tests.attack --seconds 7200 --keep        # `make attack`: goes on where it was stopped

Attempts are numbered, and a number is an attempt for good: `--only 'extract: operation' --from 17 --rounds 1` makes one
again. What is kept (benchmarks/results/attack.json) says how many of each were tried and held, and which broke; an
attempt of fuzzing is `each` files.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from benchmarks.machine import RESULTS, save_result
from tests.attack import changed
from tests.attack.costs import COMMANDS as COSTED
from tests.attack.costs import HOSTILE, bounded
from tests.attack.environments import COMMANDS as ENVIRONED
from tests.attack.environments import ODD, endured
from tests.attack.flips import FLIPS, OPENED, READERS, flipped, flipped_inside, whole_of
from tests.attack.forks import import_all
from tests.attack.fuzz import fuzzed
from tests.attack.guided import folder_of, refound
from tests.attack.inputs import refused
from tests.attack.kills import Broken, Way, broken_by, undisturbed
from tests.attack.memory import STEPS, SYSTEMS, flat
from tests.attack.outputs import cases, held_outputs
from tests.attack.pipes import COMMANDS, GIVEN, not_waited_for
from tests.attack.ranks import lost, whole_of_ranks
from tests.attack.requests import EACH, answered
from tests.attack.samples import fuzzers
from tests.attack.states import STEPS as STATES_STEPS
from tests.attack.states import TRIED as STATES_VERBS
from tests.attack.states import kept
from tests.attack.verbs import VERBS, make_world

NAME = "attack"
COMMAND = "uv run python -m tests.attack --seconds 7200 --keep"
Try = Callable[[int], Broken | str | None]


@dataclass(frozen=True)
class Kind:
    """A way of attacking something: a number makes one attempt, of `at_once` files or steps, and the whole attack makes
    those that are `wanted`."""

    name: str
    one: Try
    wanted: int
    at_once: int = 1


def kinds(world: Path, place: Path) -> Iterator[Kind]:
    """What must be known first is found at the first attempt."""
    for verb in VERBS:
        for way in get_args(Way):
            yield Kind(f"{verb.name}: {way}", _killing(verb, way, world, place), 28 if way in KILLS else 12)
    for reader in READERS:
        yield Kind(f"{reader.name}: flipped bit", _flipping(reader, world, place), 150)
    for opened in OPENED:
        yield Kind(f"{opened.name}: flipped bits", partial(flipped_inside, opened, world), 1200 // FLIPS, FLIPS)
    for fuzzer in fuzzers(world):
        if finds := sorted(folder_of(fuzzer.name).glob("*")):
            yield Kind(f"{fuzzer.name}: finds", partial(refound, fuzzer, finds, place), len(finds))
        yield Kind(f"{fuzzer.name}: fuzzed", partial(fuzzed, fuzzer), max(12, 3000 // fuzzer.at_once), fuzzer.at_once)
    yield Kind("bad inputs: command line", lambda number: refused(f"inputs/{number}", world, place), 1000)
    yield Kind("pipes and devices", lambda number: not_waited_for(number, world, place), len(GIVEN) * len(COMMANDS))
    yield Kind("costs", lambda number: bounded(number, world, place), len(HOSTILE) * len(COSTED))
    yield Kind("service: requests", lambda number: answered(number, place / "service"), 100, EACH)
    yield Kind("outputs: all combinations", lambda number: held_outputs(number, place / "outputs"), len(cases()))
    yield Kind("environments", lambda number: endured(number, world, place), len(ODD) * len(ENVIRONED))
    yield Kind(f"states: {STATES_STEPS} steps", _in_any_order(world, place), 40, STATES_STEPS)
    yield Kind("changed inputs", _changing(world, place), len(changed.cases()))
    yield Kind("two ranks: one lost", _losing(world, place), 12)
    yield Kind(f"memory: {STEPS:,} steps", lambda number: flat(number, world, place), len(SYSTEMS), STEPS)


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


def _in_any_order(world: Path, place: Path) -> Try:
    def one(number: int) -> Broken | None:
        for verb in STATES_VERBS.values():
            if verb not in WHOLE:
                WHOLE[verb] = undisturbed(verb, world, place)
        return kept(number, {name: WHOLE[verb] for name, verb in STATES_VERBS.items()}, world, place)

    return one


def _changing(world: Path, place: Path) -> Try:
    def one(number: int) -> Broken | str:
        if "changed" not in WHOLE:
            WHOLE["changed"] = changed.two_worlds(world, place.with_name("changed"))
        return changed.stale(number, WHOLE["changed"], place)

    return one


def _losing(world: Path, place: Path) -> Try:
    def one(number: int) -> Broken | None:
        if "ranks" not in WHOLE:
            WHOLE["ranks"] = whole_of_ranks(world, place)
        return lost(f"ranks/{number}", WHOLE["ranks"], world, place)

    return one


WHOLE: dict[Any, Any] = {}
KILLS = ("operation", "instant")


@contextmanager
def prepared() -> Iterator[tuple[Path, Path]]:
    import_all()
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        make_world(Path(folder) / "world")
        yield Path(folder) / "world", Path(folder) / "try"


def run(until: float, rounds: int | None, figures: dict[str, Any], asked: Asked, each: Callable[[], object]) -> None:
    """Until the time is over, or the rounds, or all that is wanted was tried: the kind of which the least was, next."""
    with prepared() as (world, place):
        chosen = [kind for kind in kinds(world, place) if asked(kind.name)]
        rows = {kind.name: figures.setdefault(kind.name, {"tried": 0, "held": 0, "broken": []}) for kind in chosen}
        last = {name: row["tried"] + rounds for name, row in rows.items()} if rounds is not None else {}
        while True:
            left = [kind for kind in chosen if rows[kind.name]["tried"] < last.get(kind.name, kind.wanted)]
            if not left or time.monotonic() > until:
                return
            kind = min(left, key=lambda one: rows[one.name]["tried"] / one.wanted)
            _count(kind, rows[kind.name])
            each()


def _count(kind: Kind, row: dict[str, Any]) -> None:
    found = kind.one(row["tried"])
    if isinstance(found, Broken):
        row["broken"].append(row["tried"])
        print(f"{kind.name} {row['tried']}: {found.how}", flush=True)
    elif found is not None:
        row[found] = row.get(found, 0) + 1
    row["tried"] += 1
    row["held"] = row["tried"] - len(row["broken"])
    if kind.at_once > 1:
        row["each"] = kind.at_once


Asked = Callable[[str], bool]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long at most")
    parser.add_argument("--rounds", type=int, help="attempts of each kind (default: until --seconds are over)")
    parser.add_argument("--keep", action="store_true", help=f"go on after {RESULTS.name}/{NAME}.json, and keep it")
    parser.add_argument("--only", default="", help="part of the names of attacks; several with | between them")
    parser.add_argument("--without", default="nothing", help="the same of those that are left out")
    parser.add_argument("--from", dest="begin", type=int, default=0, help="number of the first attempt of each kind")
    parser.add_argument("--json", type=Path, help="write the table there")
    given = parser.parse_args()
    kept = RESULTS / f"{NAME}.json"
    figures: dict[str, Any] = json.loads(kept.read_text())["figures"] if given.keep and kept.exists() else {}
    if given.rounds is None and given.seconds == math.inf:
        raise SystemExit("pass --seconds or --rounds")
    if given.begin and given.keep:
        raise SystemExit("--from makes single attempts again, --keep counts them all from the first: pass one of them")
    left_out = given.without.split("|")

    def asked(name: str) -> bool:
        return any(part in name for part in given.only.split("|")) and not any(part in name for part in left_out)

    if given.begin:
        names = [kind.name for kind in kinds(Path(), Path()) if asked(kind.name)]
        figures = {name: {"tried": given.begin, "held": given.begin, "broken": []} for name in names}
    until = time.monotonic() + given.seconds
    run(until, given.rounds, figures, asked, lambda: given.keep and save_result(NAME, COMMAND, figures))
    if given.json:
        given.json.write_text(json.dumps(figures))
    for name, row in figures.items():
        print(f"{name}: {row['tried']} tried, {row['held']} held, {len(row['broken'])} broken")
    raise SystemExit(1 if any(row["broken"] for row in figures.values()) else 0)


if __name__ == "__main__":
    main()
