"""A package from outside in a folder for PYTHONPATH, with the metadata that pip would write; nothing is installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support import zygote

REPOSITORY = Path(__file__).parents[2]

# A system that differs from ImageBERT in its name, a head, a format: everything that a package can add but for a task.
SYSTEM = '''
"""All that the package adds."""

from dataclasses import replace
from typing import Literal

from diptych.plugin import FORMATS, OBJECTIVES, RECIPES, SYSTEMS, Format, Record, add_system


class TinyObjectives(OBJECTIVES["image-bert"]):
    kind: Literal["tiny"] = "tiny"


SIZES = {"width": 16, "layers": 1, "heads": 2, "ffn": 32, "positions": 32, "dropout": 0.0}
TRAINING = {"batch": 4, "steps": 2, "validate_every": 2, "checkpoint_every": 2, "precision": "fp32"}


def register() -> None:
    smallest = RECIPES["image-bert/small/pretrain"].but(
        "tiny/small/pretrain",
        "The smallest recipe that trains.",
        system="tiny",
        model=SIZES,
        objectives=TinyObjectives(),
        training=TRAINING,
    )
    named = {"name": "tiny", "title": "Tiny", "tables": None, "objectives": TinyObjectives, "recipes": (smallest,)}
    add_system(replace(SYSTEMS["image-bert"], **named))
    FORMATS["tiny"] = Format(
        "a .tiny file", lambda source: source.path.suffix == ".tiny", lambda wanted, file: [Record("one", "train")]
    )
'''


def package(folder: Path, code: str, name: str = "tiny", version: str = "0.2") -> Path:
    """A folder that holds an installed package of one module, whose `register` is its entry point."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code)
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(f"[diptych]\n{name} = {name}:register\n")
    return folder


def diptych(*arguments: object, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, where the packages in `path` are installed."""
    return _run("-m", "diptych.cli", *map(str, arguments), path=path)


def python(script: str, path: Path) -> str:
    """What a script prints."""
    done = _run("-c", script, path=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(*arguments: str, path: Path | None) -> subprocess.CompletedProcess[str]:
    places = [str(REPOSITORY / "src"), *([] if path is None else [str(path)])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    return zygote.run(arguments, environment, REPOSITORY)
