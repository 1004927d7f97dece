"""A package from outside in a folder for PYTHONPATH, with the metadata that pip would write; nothing is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent

# A system that differs from ImageBERT in its name, a head, a format: everything that a package can add but for a task.
SYSTEM = '''
"""All that the package adds."""

from dataclasses import replace
from pathlib import Path

from diptych.data.formats.format import Format
from diptych.data.formats.table import FORMATS
from diptych.core import Record
from diptych.runtime.configs import derive
from diptych.systems import SYSTEMS, add_system
from diptych.systems.recipe import Recipe


def pretrain() -> Recipe:
    """The smallest recipe that trains."""
    from diptych.systems import find_recipe

    values = find_recipe("image-bert/small/pretrain").model_dump(mode="json")
    small = {"width": 16, "layers": 1, "heads": 2, "ffn": 32, "positions": 32, "dropout": 0.0}
    training = {"batch": 4, "steps": 2, "micro_batch": 4, "validate_every": 2, "checkpoint_every": 2}
    return Recipe.model_validate(
        values
        | {"name": "tiny/small/pretrain", "system": "tiny", "model": values["model"] | small}
        | {"training": values["training"] | training}
    )


def register() -> None:
    add_system(
        replace(SYSTEMS["image-bert"], name="tiny", title="Tiny", tables=None, recipes=lambda: (pretrain,))
    )
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
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"},
    )
