"""Verbs in odd environments: a result or a sentence, and no input changed."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.attack.forks import attempt
from tests.attack.kills import Broken, copied
from tests.attack.outputs import contents
from tests.attack.verbs import VERBS

COMMANDS = (
    *(verb.arguments for verb in VERBS if verb.name in ("extract", "tokenizer train", "caption")),
    ("recipes", "--system", "tden", "--table", "2"),
    ("check", "mine.jsonl", "--json"),
    ("caption", "0.png", "--model", "captioner", "--show", "shown.png"),
    ("mine", "judge", "classes", "--out", "judge"),
)


def _set(**variables: str) -> None:
    os.environ.update(variables)


def _limited(what: int, most: int) -> None:
    resource.setrlimit(what, (most, most))


def _without_a_folder() -> None:
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")


ODD: dict[str, Callable[[], object]] = {
    "a HOME that is missing": partial(_set, HOME="/nonexistent", XDG_CACHE_HOME=""),
    "a HOME that is a file": partial(_set, HOME="/dev/null", XDG_CACHE_HOME=""),
    "a cache that is a device": partial(_set, XDG_CACHE_HOME="/dev/full"),
    "a TMPDIR that is missing": partial(_set, TMPDIR="/nonexistent"),
    "ASCII": partial(_set, LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii"),
    "no locale": partial(_set, LC_ALL="xx_XX.none", LANG=""),
    "a terminal of no width": partial(_set, COLUMNS="0", LINES="-1", TERM="none"),
    "threads that are no number": partial(_set, OMP_NUM_THREADS="many", MKL_NUM_THREADS="-1"),
    "half of torchrun": partial(_set, WORLD_SIZE="2", RANK="x"),
    "no rights for others or itself": partial(os.umask, 0o777),
    "few open files": partial(_limited, resource.RLIMIT_NOFILE, 24),
    "small files": partial(_limited, resource.RLIMIT_FSIZE, 500),
    "a folder that is gone": _without_a_folder,
}


def endured(number: int, world: Path, place: Path) -> Broken | None:
    """One command in one environment."""
    name, prepare = list(ODD.items())[number % len(ODD)]
    arguments = COMMANDS[number // len(ODD) % len(COMMANDS)]
    folder = copied(world, place)
    before = contents(folder)
    ended = attempt(folder, arguments, prepare)
    now = contents(folder)
    lost = [path for path, digest in before.items() if now.get(path) != digest]
    if lost or not ended.clean:
        how = f"{' '.join(arguments)[:80]}: code {ended.code}, {ended.last}, changed {lost[:3]}"
        return Broken("environments", f"{number}: {name}", f"{name}: {how}")
    return None
