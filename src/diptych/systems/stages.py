"""Recipes of several stages. Each stage starts from the weights of the previous one (ImageBERT, section 4.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from diptych.runtime.errors import RecipeError, counted
from diptych.systems.recipe import Recipe
from diptych.tasks import TASKS

STAGE = re.compile(r"(\d+)\.(.+)")
# Keys that only the first stage has. A later stage starts from the model of the stage before it.
FIRST_ALONE = ("init", "network_init", "data.vocabulary")


@dataclass(frozen=True, repr=False)
class Stages:
    """A list of recipes. Each recipe after the first starts from the model of the previous one.

    An ordinary run has one recipe. Raises RecipeError if the list is empty, or if systems or models differ between
    stages.
    """

    name: str
    recipes: tuple[Recipe, ...]

    def __post_init__(self) -> None:
        if not self.recipes:
            raise RecipeError(f"{self.name} has no stages, so there is nothing to train; add at least one recipe")
        systems = {recipe.system for recipe in self.recipes}
        if len(systems) > 1:
            raise RecipeError(f"the stages of {self.name} train {', '.join(sorted(systems))}; expected one system")
        for recipe in self.recipes[1:]:
            if recipe.model != self.recipes[0].model:
                lines = (line for line in recipe.differences(self.recipes[0]) if line.startswith("model."))
                raise RecipeError(
                    f"{recipe.name} has a different model than the first stage: {'; '.join(lines)}; all stages "
                    "need the same model"
                )

    def __repr__(self) -> str:
        steps = " + ".join(str(recipe.training.steps) for recipe in self.recipes)[:60]
        what = f"{self.name[:100]}: {counted(self.recipes, 'recipes')} of {self.recipes[0].system[:30]}, {steps} steps"
        return f"<diptych.Stages {what}; .recipes has them>"

    def override(self, assignments: Sequence[str]) -> Stages:
        """Return the stages with keys set: `optimizer.lr=1e-4` in all stages, `2.optimizer.lr=1e-4` only in stage 2.

        Raises RecipeError for a stage that does not exist, and for the errors of `Recipe.override`.
        """
        if len(self.recipes) == 1:
            return Stages(self.name, (self.recipes[0].override(assignments),))
        own: list[list[str]] = [[] for _ in self.recipes]
        for assignment in assignments:
            numbered = STAGE.match(assignment)
            if numbered is None:
                for settings in own[:1] if assignment.partition("=")[0] in FIRST_ALONE else own:
                    settings.append(assignment)
            elif not 1 <= int(numbered[1]) <= len(own):
                raise RecipeError(f"--set {assignment}: {self.name} has stages 1 to {len(own)}")
            else:
                own[int(numbered[1]) - 1].append(numbered[2])
        changed = tuple(recipe.override(settings) for recipe, settings in zip(self.recipes, own, strict=True))
        return Stages(self.name, changed)

    def check_pretrains(self) -> None:
        """Raise RecipeError if a stage fine-tunes for a task instead of pre-training."""
        for recipe in self.recipes:
            if not TASKS[recipe.task].pretrains:
                raise RecipeError(
                    f"{recipe.name} does not pre-train; run: diptych finetune {recipe.task} --recipe {self.name}"
                )
