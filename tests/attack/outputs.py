"""Every verb is given what is not its own as an output: nothing of the user's may change.

The combinations are made from the command line's own tables: each verb, each of its outputs (`diptych.cli.outputs`),
and each of VICTIMS, or an input of the same command. A verb has to refuse before any work; where the kind is its own (a
store for `extract`) it may go on, and changes nothing that is there either, as its other arguments lead nowhere.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from enum import Enum
from functools import cache
from io import StringIO
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import typer

from diptych.cli import app
from diptych.cli.app import locks
from diptych.cli.outputs import OutFile, OutFolder
from diptych.cli.predict import make_verb
from diptych.cli.verbs import VERBS
from diptych.runtime.errors import DiptychError, OutputError
from diptych.runtime.verbs import TASK_VERBS
from tests.attack.kills import Broken

PICTURE = b"\x89PNG\r\n\x1a\nnot decoded: the verb has to refuse before"


def photographs(folder: Path) -> None:
    for name in ("a.png", "b.jpg", "sub/c.png", "Thumbs.db"):
        written(folder / name, PICTURE)


def checkout(folder: Path) -> None:
    for name in (".git/HEAD", ".git/objects/ab/cd", "README.md", "src/work.py", "config.json", "recipe.json", ".lock"):
        written(folder / name, f"of a checkout: {name}".encode())


def dotfiles(folder: Path) -> None:
    for name in (".env", ".bashrc.20240101.old", ".notes.20231231.partial", ".site.99999999.old/index.html", ".lock"):
        written(folder / name, b"KEY=1")


def model(folder: Path) -> None:
    for name, text in {
        "config.json": "{}",
        "model.safetensors": "weights",
        "README.md": "a card",
        "notes.txt": "mine",
    }.items():
        written(folder / name, text.encode())
    written(folder / "recipe.json", b'{"objectives": {}}')
    written(folder / "weights.json", b'{"model.safetensors": 1}')
    written(folder / "detector" / "detector.json", b'{"kind": "storybook"}')


def marked_model(folder: Path) -> None:
    model(folder)
    lines = [f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}" for one in folder.iterdir() if one.is_file()]
    written(folder / ".diptych", "\n".join(["diptych model", *lines, ""]).encode())


def store(folder: Path) -> None:
    written(folder / "store.json", b'{"shards": []}')
    written(folder / "00000.safetensors", b"regions")
    written(folder / ".diptych", b"diptych store\n")


def run(folder: Path) -> None:
    written(folder / "recipe.json", b'{"objectives": {}}')
    written(folder / "metrics.jsonl", b"{}\n")
    written(folder / "checkpoints" / "step-10" / "model.safetensors", b"weights")
    model(folder / "model")
    written(folder / ".diptych", b"diptych run\n")


def file(path: Path) -> None:
    written(path, b"years of work")


def link(path: Path) -> None:
    photographs(path.with_name("photographs behind a link"))
    path.symlink_to("photographs behind a link")


def file_in_model(path: Path) -> None:
    """The marker lists it with its hash, and it is not an output of another verb for that."""
    marked_model(path.parent / "owner")
    path.symlink_to("owner/config.json")


VICTIMS: dict[str, Callable[[Path], None]] = {
    "photographs": photographs, "a git checkout": checkout, "dotfiles": dotfiles, "a model": marked_model,
    "a model without a marker": model, "a store": store, "a run": run, "a file": file,
    "a link to photographs": link, "a file of a model": file_in_model,
}  # fmt: skip
OWN = {"a store": "store", "a run": "run"}
AS_INPUT = "input: "


@dataclass(frozen=True)
class Case:
    """A verb whose output `output` is a victim, or the value of its other parameter (`input: NAME`)."""

    verb: str
    output: str
    victim: str

    def __str__(self) -> str:
        return f"{self.verb} {self.output} {self.victim}"


@cache
def verbs() -> dict[str, Any]:
    """Every verb by its words, those of tasks included."""
    made = dict(commands(typer.main.get_command(app)))
    return made | {name: made_verb for name in TASK_VERBS if (made_verb := make_verb(name)) is not None}


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every verb, those of groups as `storybook write`. Groups are known by what they hold: typer has its own click."""
    for name in group.commands if before else VERBS:
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


def outputs_of(command: Any) -> dict[str, OutFolder | OutFile]:
    return getattr(command.callback, "outputs", {})


@cache
def cases() -> tuple[Case, ...]:
    return tuple(
        Case(verb, output, victim)
        for verb, command in sorted(verbs().items())
        for output in outputs_of(command)
        for victim in (*VICTIMS, *(f"{AS_INPUT}{one.name}" for one in command.params if _takes_path(one, output)))
    )


def _takes_path(parameter: Any, output: str) -> bool:
    return parameter.name != output and _kind(parameter) in (str, Path)


def _kind(parameter: Any) -> Any:
    """The type of one value of a parameter, without None and list."""
    annotation = parameter.type_descriptor.annotation if hasattr(parameter, "type_descriptor") else bool
    while get_origin(annotation) in (list, tuple, UnionType) or str(get_origin(annotation)) == "typing.Union":
        annotation = next(one for one in get_args(annotation) if one is not type(None))
    return annotation


def _value(parameter: Any) -> str:
    kind = _kind(parameter)
    if get_origin(kind) is Literal:
        return str(get_args(kind)[0])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str(next(iter(kind)).value)
    return "1" if kind in (int, float) else "other input"


def changed(case: Case, place: Path) -> Broken | None:
    """Make the victim in the empty folder `place`, run the verb there, and compare all hashes."""
    command = verbs()[case.verb]
    output = outputs_of(command)[case.output]
    given = {case.output: "victim"}
    file(place / "other input")
    if case.victim.startswith(AS_INPUT):
        given[case.victim.removeprefix(AS_INPUT)] = "victim"
        (place / "victim").mkdir() if isinstance(output, OutFolder) else file(place / "victim")
    else:
        VICTIMS[case.victim](place / "victim")
    for one in command.params:
        if one.required and one.name not in given:
            given[one.name] = _value(one)
    before = contents(place)
    error = _refusal(command, given, place)
    if (after := contents(place)) != before:
        different = sorted(set(before.items()) ^ set(after.items()))
        return Broken(str(case), str(case), f"{case}: changed {different[:4]}")
    own = isinstance(output, OutFolder) and output.kind == OWN.get(case.victim, "")
    if not (own or isinstance(error, OutputError) or "is a folder; pass" in str(error)):
        return Broken(str(case), str(case), f"{case}: was not refused as an output: {error!r}")
    return None


def _refusal(command: Any, given: dict[str, str], place: Path) -> BaseException | None:
    options = [word for one in command.params if one.name in given and one.param_type_name == "option"
               for word in (max(one.opts, key=len), given[one.name])]  # fmt: skip
    arguments = [given[one.name] for one in command.params if one.name in given and one.param_type_name != "option"]
    with _alone(place):
        try:
            with locks:
                command.main(args=[*options, "--", *arguments], standalone_mode=False)
        except (DiptychError, SystemExit, Exception) as error:
            return error
    return None


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    before = os.getcwd(), tempfile.tempdir, dict(os.environ), signal.getsignal(signal.SIGTERM)
    os.chdir(place)
    os.environ["XDG_CACHE_HOME"] = str(place.with_name(f"{place.name} cache"))
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    finally:
        os.chdir(before[0])
        tempfile.tempdir = before[1]
        os.environ.clear()
        os.environ.update(before[2])
        signal.signal(signal.SIGTERM, before[3])


def contents(folder: Path) -> dict[str, str]:
    """Every path below a folder, with the hash of its content."""
    paths = (Path(here, name) for here, folders, names in os.walk(folder) for name in (*folders, *names))
    return {
        path.relative_to(folder).as_posix(): f"-> {path.readlink()}"
        if path.is_symlink()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "folder"
        for path in paths
    }


def written(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def held_outputs(number: int, place: Path) -> Broken | None:
    """One of the combinations, as a part of the attack."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return changed(cases()[number % len(cases())], place)
