"""Reserve a folder for one study. The same settings resume the study; other settings are refused with the
difference."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from diptych.runtime.errors import RecipeError
from diptych.runtime.files import write_atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FILE = "study.json"
MAY_DIFFER = ("seeds", "out")  # fields that may change when a study resumes, such as more seeds


def claim(plan: DataclassInstance, out: str) -> None:
    """Write the settings of the study `plan` into `out`. Raises RecipeError if `out` has a study with other
    settings."""
    asked, kept = json.loads(json.dumps(asdict(plan))), Path(out) / FILE
    before = json.loads(kept.read_text("utf-8")) if kept.is_file() else asked
    if different := [name for name in asked if name not in MAY_DIFFER and asked[name] != before.get(name)]:
        changes = "; ".join(f"{name}: {asked[name]}, was {before.get(name)}" for name in different)
        raise RecipeError(f"{out} holds another study ({changes}); repeat these settings, or give another folder")
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, json.dumps(asked, indent=1).encode())
