"""Several recipes that train one after the other, each from the weights of the one before (ImageBERT, section 4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from diptych.runtime.errors import RecipeError
from diptych.systems.recipe import Recipe, claimed
from diptych.tasks import TASKS

STAGE = re.compile(r"(\d+)\.(.+)")
FIRST_ALONE = ("init", "network_init", "data.vocabulary")  # later stages have weights and words from the one before


@dataclass(frozen=True)
class Stages:
    """One recipe is a run like any other; of several each goes on from the one before."""

    name: str
    recipes: tuple[Recipe, ...]

    def __post_init__(self) -> None:
        if not self.recipes:
            raise RecipeError(f"{self.name} has no stages, so there is nothing to train")
        systems = {recipe.system for recipe in self.recipes}
        if len(systems) > 1:
            raise RecipeError(f"the stages of {self.name} train different systems: {', '.join(sorted(systems))}")
        for recipe in self.recipes[1:]:
            if recipe.model != self.recipes[0].model:
                raise RecipeError(
                    f"{recipe.name} has another model than the stage before it: "
                    + "; ".join(line for line in recipe.differences(self.recipes[0]) if line.startswith("model."))
                    + "; stages share one network"
                )

    def override(self, assignments: Sequence[str]) -> Stages:
        """`optimizer.lr=1e-4` of every stage, `2.optimizer.lr=1e-4` of the second."""
        if len(self.recipes) == 1:
            return Stages(self.name, (self.recipes[0].override(assignments),))
        own: list[list[str]] = [[] for _ in self.recipes]
        for assignment in assignments:
            numbered = STAGE.match(assignment)
            if numbered is None:
                alone = assignment.partition("=")[0] in FIRST_ALONE
                for settings in own[:1] if alone else own:
                    settings.append(assignment)
            elif not 1 <= int(numbered[1]) <= len(own):
                raise RecipeError(f"--set {assignment}: {self.name} has stages 1 to {len(own)}")
            else:
                own[int(numbered[1]) - 1].append(numbered[2])
        changed = tuple(recipe.override(settings) for recipe, settings in zip(self.recipes, own, strict=True))
        return Stages(self.name, changed)

    def check_pretrains(self) -> None:
        """Raises RecipeError where one of them teaches a task, which `finetune` does."""
        for recipe in self.recipes:
            if not TASKS[recipe.task].pretrains:
                raise RecipeError(
                    f"{recipe.name} teaches {recipe.task} and pre-trains nothing; diptych finetune {recipe.task} "
                    f"--recipe {self.name} --model MODEL, or --model none to begin from nothing"
                )

    def folders(self, out: Path) -> Iterator[tuple[Path, Recipe]]:
        if len(self.recipes) == 1:
            yield out, self.recipes[0]
            return
        for number, recipe in enumerate(self.recipes, start=1):
            yield out / f"stage-{number}", recipe

    def claimed(self, out: Path) -> bool:
        """Whether a run of these lies there. Raises RecipeError where it is another's."""
        found = [claimed(folder, recipe) for folder, recipe in self.folders(out)]  # all of them: each may be another's
        return any(found)
