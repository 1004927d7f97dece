"""Verbs and what a user does between them, in any order, drawn by hypothesis: nothing of the user's is lost, and each
result is that of an undisturbed run, or the verb refuses."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.attack.forks import Ended, attempt
from tests.attack.kills import BEGUN, Broken, Undisturbed, copied
from tests.attack.outputs import contents
from tests.attack.verbs import VERBS, Verb, digests

STEPS, RUNS = 12, 3  # the first run of each attempt has the fewest steps
NOTE = "my notes"
TRIED = {verb.name: verb for verb in VERBS if verb.name in ("extract", "tokenizer train", "caption", "evaluate")}
verbs = st.sampled_from(sorted(TRIED)).map(TRIED.__getitem__)


class States(RuleBasedStateMachine):
    """`mine`: what may not change, by path, with its hash; `foreign`: verbs whose output a user has changed."""

    world: Path
    place: Path
    wholes: dict[str, Undisturbed]

    def __init__(self) -> None:
        super().__init__()
        self.folder = copied(self.world, self.place)
        self.mine = contents(self.folder)
        self.foreign: set[str] = set()
        self.count = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(verb=verbs)
    def start(self, verb: Verb) -> None:
        ended = self._attempt(verb)
        assert ended.clean, f"{verb.name}: code {ended.code}, {ended.last}"
        assert ended.code == 0 or verb.name in self.foreign, f"{verb.name}: refused by {ended.last}"
        if ended.code == 0:
            left = {name: digest for name, digest in digests(self.folder / verb.writes).items() if NOTE not in name}
            assert left == self.wholes[verb.name].files, f"{verb.name}: another result, without a word"

    @rule(verb=verbs, share=st.floats(0, 1))
    def kill(self, verb: Verb, share: float) -> None:
        self._attempt(verb, after=BEGUN + share * self.wholes[verb.name].seconds)

    @rule(verb=verbs)
    def move(self, verb: Verb) -> None:
        if (self.folder / verb.writes).exists():
            self._renamed(verb, f"moved-{self.count}")
            self.foreign.discard(verb.name)

    @rule(verb=verbs, other=verbs)
    def swap(self, verb: Verb, other: Verb) -> None:
        """What a verb wrote is put where another one writes."""
        if verb != other and (self.folder / verb.writes).exists():
            self.move(other)
            self._renamed(verb, other.writes)
            self.foreign.discard(verb.name)
            self.foreign.add(other.name)

    @rule(verb=verbs, which=st.integers(0, 99))
    def truncate(self, verb: Verb, which: int) -> None:
        target = self.folder / verb.writes
        files = [target] if target.is_file() else sorted(path for path in target.rglob("*") if path.is_file())
        files = [path for path in files if str(path.relative_to(self.folder)) not in self.mine]
        if files:
            path = files[which % len(files)]
            os.truncate(path, path.stat().st_size // 2)
            self.foreign.add(verb.name)

    @rule(verb=verbs)
    def note(self, verb: Verb) -> None:
        if (self.folder / verb.writes).is_dir():
            self.count += 1
            path = self.folder / verb.writes / f"{NOTE} {self.count}.txt"
            path.write_text(f"of the user {self.count}")
            self.mine[str(path.relative_to(self.folder))] = contents(path.parent)[path.name]
            self.foreign.add(verb.name)

    def _attempt(self, verb: Verb, after: float | None = None) -> Ended:
        cache = partial(os.environ.__setitem__, "XDG_CACHE_HOME", str(self.folder / ".cache"))
        ended = attempt(self.folder, verb.arguments, cache, after)
        now = contents(self.folder)
        lost = [name for name, digest in self.mine.items() if now.get(name) != digest]
        assert not lost, f"{verb.name}: lost or changed {lost[:4]}"
        return ended

    def _renamed(self, verb: Verb, name: str) -> None:
        self.count += 1
        before, target = self.folder / verb.writes, self.folder / name
        before.rename(target)
        self.mine = {known: digest for known, digest in self.mine.items() if known.split("/")[0] != verb.writes}
        self.mine |= {name: "folder"} if target.is_dir() else {name: contents(self.folder)[name]}
        self.mine |= {f"{name}/{inside}": digest for inside, digest in contents(target).items()}


def kept(number: int, wholes: dict[str, Undisturbed], world: Path, place: Path) -> Broken | None:
    """One drawn order of steps."""
    machine = type("Drawn", (States,), {"world": world, "place": place, "wholes": wholes})
    few = settings(
        max_examples=RUNS, stateful_step_count=STEPS, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    try:
        run_state_machine_as_test(seed(number)(machine), settings=few)
    except AssertionError as error:
        return Broken("states", str(number), str(error))
    return None
