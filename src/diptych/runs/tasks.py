"""From a recipe, or a model folder, to the task that it names: `diptych.tasks.TASKS` says what each is."""

from __future__ import annotations

from diptych.core import Task
from diptych.data.store.tokens import Tokens
from diptych.runs.folder import ModelFolder
from diptych.runtime.errors import RecipeError
from diptych.systems.recipe import Recipe
from diptych.tasks import find_learnt, find_task
from diptych.tasks.answers import Answers
from diptych.tasks.spec import TaskOptions


def make_task(recipe: Recipe, tokens: Tokens, answers: Answers | None, name: str | None = None) -> Task:
    """The recipe's, or another by `name`, made as the recipe says."""
    options = TaskOptions(
        tokens,
        answers,
        recipe.decoding,
        recipe.data.max_words,
        recipe.model.max_regions,
        recipe.model.answer_slot,
        recipe.objectives.answer_form,
        recipe.objectives.reads_pairs,
    )
    return find_task(name or recipe.task).build(options)


def task_of(folder: ModelFolder, name: str | None = None) -> Task:
    """The task that a model was trained for, or another one by name. Raises RecipeError where it has not learnt it."""
    if folder.recipe is None:
        raise RecipeError(
            f"{folder.folder} was imported and knows no task yet; fine-tune it: diptych finetune {name or 'caption'}"
        )
    if name is not None and not find_learnt(name).can_ask(folder.model):
        raise RecipeError(
            f"{folder.folder} has not learnt {name}; teach it: diptych finetune {name} --model {folder.folder}"
        )
    return make_task(folder.recipe, folder.tokens, folder.answers, name)
