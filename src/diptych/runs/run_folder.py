"""The folder of a run. Its recipe.json decides if a run can resume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from diptych.runtime import outputs
from diptych.runtime.claims import refuse_other
from diptych.runtime.errors import counted
from diptych.systems.recipe import CHANGEABLE, FILE, Recipe
from diptych.systems.stages import Stages
from diptych.training.checkpoint import steps_in
from diptych.training.trainer import CHECKPOINTS


@dataclass(frozen=True)
class RunFolder:
    """A run's folder and its recipe.

    If the folder holds a run of another recipe, a RecipeError lists the differences.
    """

    path: Path
    recipe: Recipe
    before: Recipe | None  # the recipe in recipe.json; None: no run was started in the folder
    notes: tuple[str, ...] = ()  # warnings about settings that changed since the run began

    @classmethod
    def open(cls, path: Path, recipe: Recipe) -> RunFolder:
        """Open a folder for a run with `recipe`. If a run was started in it, read the recipe of that run."""
        before = Recipe.load(path) if (path / FILE).exists() else None
        return cls(path, recipe, before, tuple(_longer(path, recipe, before)) if before is not None else ())

    def __post_init__(self) -> None:
        if self.before is None:
            return
        lines = self.recipe.differences(self.before, without=CHANGEABLE)
        steps, before = self.recipe.training.steps, self.before.training.steps
        if steps < before:
            lines.append(f"training.steps: {steps}, was {before}; the steps of a run can only be raised")
        refuse_other(self.path, "a run of another recipe", lines)

    def lasting(self, recipe: Recipe) -> RunFolder:
        """Return the folder with a recipe of another number of steps."""
        return replace(
            self, recipe=recipe, notes=() if self.before is None else tuple(_longer(self.path, recipe, self.before))
        )

    @property
    def resumes(self) -> bool:
        """True if the folder holds a run that will be resumed."""
        return self.before is not None

    @property
    def begun(self) -> bool:
        """True if the folder has checkpoints."""
        return bool(steps_in(self.path / CHECKPOINTS))

    def claim(self) -> None:
        """Write the recipe to recipe.json, unless it is there already."""
        if self.before != self.recipe:
            outputs.claim(self.path, "run")
            self.recipe.save(self.path)


def _longer(path: Path, recipe: Recipe, before: Recipe) -> Iterator[str]:
    """Yield a warning if a resumed run gets more steps than before."""
    steps, schedule = recipe.training.steps, recipe.optimizer.schedule
    if steps > before.training.steps:
        yield f"{path}: resumes to {counted(steps, 'steps')}, was {before.training.steps}; learning rates " + (
            "stay as they are"
            if schedule not in ("linear", "cosine")
            else f"now follow the {schedule} schedule of {counted(steps, 'steps')}, so the result differs from that "
            "of a run with this number of steps from the start"
        )


def open_stages(stages: Stages, out: Path) -> tuple[RunFolder, ...]:
    """Open the folder of each stage: `out/stage-1`, `out/stage-2` and so on, or `out` itself for a single stage."""
    one = len(stages.recipes) == 1
    return tuple(
        RunFolder.open(out if one else out / f"stage-{number}", recipe)
        for number, recipe in enumerate(stages.recipes, start=1)
    )
