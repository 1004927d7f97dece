"""Extraction as a user asks for it: eyes by name, a store that carries them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from diptych.core import Record
from diptych.errors import RecipeError
from diptych.loading.extract import Extraction, extract
from diptych.recipes.folder import EYES, INNER
from diptych.vision.eyes import Eyes
from diptych.vision.ground_truth import GroundTruth
from diptych.vision.load import load_eyes


def open_eyes(name: str, records: Sequence[Record]) -> Eyes:
    """`ground-truth`, or a folder: of eyes, of a store, of a model, or of the run that made one."""
    if name == "ground-truth":
        return GroundTruth.of(records)
    folder = Path(name)
    for inside in (folder, folder / EYES, folder / INNER / EYES):
        if (inside / "eyes.json").is_file():
            return load_eyes(inside)
    raise RecipeError(
        f"no detector {name!r}; wanted a folder with eyes.json (of a detector, a store or a model), or ground-truth"
    )


def look(
    records: Sequence[Record],
    eyes: Eyes,
    folder: Path,
    batch_size: int = 16,
    progress: Callable[[int], object] | None = None,
) -> Extraction:
    """Regions for every picture; the eyes are kept beside them, for the models that will be made from them."""
    done = extract(records, eyes, folder, batch_size, progress=progress)
    (folder / EYES).mkdir(exist_ok=True)
    eyes.save(folder / EYES)
    return done
