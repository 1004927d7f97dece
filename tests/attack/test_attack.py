"""A seeded minute of the attack, and that the tool would notice what does not hold."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
import typer

from diptych.cli import app
from diptych.runtime.errors import DataError
from tests.attack.changed import cases, stale
from tests.attack.forks import Ended
from tests.attack.fuzz import Fuzzer, corrupted, fuzzed, mutated
from tests.attack.kills import Broken, Undisturbed
from tests.attack.outputs import commands
from tests.attack.pipes import COMMANDS
from tests.attack.samples import LINE
from tests.attack.states import TRIED, kept
from tests.attack.verbs import digests

ROOT = Path(__file__).parents[2]
ROUNDS = 1
VERBS = dict(commands(typer.main.get_command(app)))
# Writes a file in two halves, then renames another over it: what a kill between them leaves differs.
WRITES = """
import os, sys
from functools import partial
from pathlib import Path
from tests.attack.forks import attempt
from tests.attack.shim import install

def write(at, way):
    install(at, way)
    Path("a").write_text("first")
    Path("b").write_text("second")
    os.replace("b", "a")

at, way, folder = sys.argv[1:]
ended = attempt(Path(folder), (), partial(write, int(at) if at != "none" else None, way))
print(ended.code)
print(ended.error)
"""


def attacked(at: int | None, way: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        # an interpreter: the loader's errors: a library is preloaded
        [sys.executable, "-c", WRITES, str(at).lower(), way, str(folder)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    code, _, error = done.stdout.partition("\n")
    return int(code), error


def attack(folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The table of a seeded attack that holds."""
    # an interpreter: `make attack` as it is started
    command = [sys.executable, "-m", "tests.attack", *options, "--json", str(folder / "table.json")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table: dict[str, dict[str, Any]] = json.loads((folder / "table.json").read_text())
    return table


@pytest.mark.thorough
@pytest.mark.attack
@pytest.mark.timeout(1200)
def test_a_minute_of_the_attack_holds(tmp_path: Path) -> None:
    # Signals, full disks and memory take many minutes: `make attack` has them.
    kinds = "operation|flipped|fuzzed|bad inputs|pipes|costs|service|ranks|outputs|environments|states"
    rows = attack(tmp_path, "--rounds", str(ROUNDS), "--only", kinds)
    assert {row["tried"] for row in rows.values()} == {ROUNDS}
    assert {row["each"] for name, row in rows.items() if "fuzzed" in name} <= {20, 30, 50, 60, 100, 200}
    assert {"extract: operation", "checkpoints: flipped bit", "lines: fuzzed"} <= set(rows)


@pytest.mark.thorough
@pytest.mark.attack
@pytest.mark.timeout(1200)
def test_no_command_returns_an_old_result_after_an_input_changed(tmp_path: Path) -> None:
    (row,) = attack(tmp_path, "--only", "changed inputs", "--rounds", str(len(cases()) // 2)).values()
    assert row["equal"] > 10
    assert row["refused"] > 20


def test_a_kill_comes_before_the_operation_that_is_named(tmp_path: Path) -> None:
    """1 opens a, 2 opens b, 3 renames b."""
    left = []
    for at in (1, 2, 3, 4):
        folder = tmp_path / str(at)
        folder.mkdir()
        assert attacked(at, "kill", folder)[0] == (-signal.SIGKILL if at < 4 else 0)
        left.append(sorted((path.name, path.read_text()) for path in folder.iterdir()))
    assert left == [[], [("a", "first")], [("a", "first"), ("b", "second")], [("a", "second")]]


def test_a_full_disk_takes_no_new_file_but_renames(tmp_path: Path) -> None:
    code, error = attacked(2, "full", tmp_path)
    assert (code, "No space left on device: 'b'" in error) == (70, True)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_operations_are_counted(tmp_path: Path) -> None:
    assert attacked(None, "kill", tmp_path)[0] == 0
    assert (tmp_path / ".attack.count").read_text() == "3"


def test_what_differs_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    before = digests(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("seconds")
    assert digests(tmp_path) == before
    (tmp_path / "a").write_text("b")
    assert digests(tmp_path) != before


def test_a_seed_makes_one_mutation_for_good() -> None:
    drawn = [json.dumps(mutated(LINE, Random(f"lines/0/{turn}"))) for turn in range(50)]
    assert drawn == [json.dumps(mutated(LINE, Random(f"lines/0/{turn}"))) for turn in range(50)]
    assert len(set(drawn)) > 30
    assert drawn.count(json.dumps(LINE)) == 0
    content = bytes(range(100))
    assert len({corrupted(content, Random(turn)) for turn in range(50)}) > 40


def _crashing(folder: Path, how: str) -> None:
    """Reads what is whole, and falls over what is not."""
    if (folder / "a").read_bytes() != b"whole":
        match how:
            case "error":
                raise KeyError("unforeseen")
            case "signal":
                faulthandler.disable()  # its report of a wanted crash is a hundred lines
                os.abort()
            case "memory":
                bytearray(2**40)
            case _:
                raise DataError("refused")


@pytest.mark.parametrize("how", ["error", "signal", "memory", "refused"])
def test_what_a_reader_does_beside_refusing_is_seen(how: str) -> None:
    fuzzer = Fuzzer("toy", lambda folder: (folder / "a").write_bytes(b"whole"), partial(_crashing, how=how), at_once=5)
    found = fuzzed(fuzzer, 0)
    assert isinstance(found, Broken) == (how != "refused")
    if found is not None:
        assert found.how.startswith("toy/0/")
        assert {"error": "KeyError", "signal": "signal 6", "memory": "MemoryError"}[how] in found.how


def test_good_files_that_are_refused_are_seen() -> None:
    def refusing(_: Path) -> None:
        raise DataError("a box of a missing image")

    found = fuzzed(Fuzzer("toy", lambda folder: (folder / "a").write_bytes(b"whole"), refusing, at_once=5), 0)
    assert found is not None
    assert "the good files of toy are refused" in found.how


def test_what_a_verb_loses_in_any_order_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "0.png").write_bytes(b"of the user")
    wholes = {name: Undisturbed({}, 1, 0.0) for name in TRIED}

    def losing(folder: Path, *_: object) -> Ended:
        (folder / "0.png").unlink(missing_ok=True)
        return Ended(0, "", "")

    monkeypatch.setattr("tests.attack.states.attempt", losing)
    found = kept(0, wholes, tmp_path / "world", tmp_path / "try")
    assert found is not None
    assert "lost or changed ['0.png']" in found.how


def test_an_old_result_of_a_changed_input_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (number,) = (
        n
        for n, (one, name, new) in enumerate(cases())
        if (one.arguments[0], name, new) == ("export", "captioner", True)
    )
    worlds = [tmp_path / "world", tmp_path / "other"]
    for world in worlds:
        (world / "captioner").mkdir(parents=True)
        (world / "captioner" / "weights").write_text(world.name)

    def verb(folder: Path, *_: object, kept: bool) -> Ended:
        if not (kept and (folder / "out").exists()):
            (folder / "out").write_bytes((folder / "captioner" / "weights").read_bytes())
        return Ended(0, "", "")

    monkeypatch.setattr("tests.attack.changed.attempt", partial(verb, kept=True))
    found = stale(number, worlds, tmp_path / "try")
    assert isinstance(found, Broken)
    assert found.how.endswith("captioner replaced by a newer one: the old result: out/out")
    monkeypatch.setattr("tests.attack.changed.attempt", partial(verb, kept=False))
    assert stale(number, worlds, tmp_path / "try") == "equal"


def test_each_path_of_the_command_line_is_a_pipe_once_in_the_attack() -> None:
    tried = set(map(_tried, COMMANDS))
    paths = {
        (verb, option.opts[0])
        for verb, command in VERBS.items()
        for option in command.params
        if option.param_type_name == "option" and _names_a_path(option.type_descriptor.annotation)
    }
    assert len(paths) > 40
    assert {(verb, option) for verb, option in paths if (verb, option) not in tried} == set()


def _names_a_path(annotation: Any) -> bool:
    return annotation is Path or any(map(_names_a_path, get_args(annotation)))


def _tried(words: tuple[str, ...]) -> tuple[str, str]:
    """The verb, and the option that gets a pipe; "" for an argument."""
    before = words[words.index("PIPE") - 1] if "PIPE" in words else ""
    verb = " ".join(words[:2]).replace("import unified-vlp", "import SYSTEM")
    return verb if verb in VERBS else words[0], before if before.startswith("--") else ""
