"""Build the task of a recipe or of a model folder, and its image reader."""

from diptych.core import Task
from diptych.data.store.pixels import Pixels
from diptych.data.store.store import Store
from diptych.data.store.tokens import Tokens
from diptych.runs.folder import ModelFolder
from diptych.runtime.errors import RecipeError
from diptych.systems.recipe import Recipe
from diptych.tasks import TaskSpec, find_learnt, find_task
from diptych.tasks.answers import Answers
from diptych.tasks.spec import TaskOptions


def make_task(recipe: Recipe, tokens: Tokens, answers: Answers | None, spec: TaskSpec | None = None) -> Task:
    """Build the recipe's task, or another one, with the recipe's settings."""
    shape, objectives = recipe.model, recipe.objectives
    options = TaskOptions(
        tokens, answers, recipe.decoding, recipe.data.max_words, recipe.data.split_words, shape.max_regions,
        shape.answer_slot, objectives.answer_form, objectives.reads_pairs,
    )  # fmt: skip
    return (spec or find_task(recipe.task)).build(options)


def task_of(folder: ModelFolder, name: str | None = None) -> Task:
    """Build the task that a model was trained for, or another by name. Raises RecipeError if it has not learnt it."""
    if folder.recipe is None:
        raise RecipeError(f"{folder.folder} was imported and has no task yet: diptych finetune {name or 'caption'}")
    spec = find_learnt(name) if name is not None else None
    if spec is not None and not spec.has_learnt(folder.model):
        command = f"diptych finetune {name} --data DATA --model {folder.folder} --out RUN"
        raise RecipeError(f"{folder.folder} has not learnt {name}: {command}")
    return make_task(folder.recipe, folder.tokens, folder.answers, spec)


def pixels_of(recipe: Recipe) -> Pixels | None:
    """Return how images are read; None if the model reads no pixels."""
    if not recipe.model.reads_pixels:
        return None
    data = recipe.data
    return Pixels(data.pixels_shorter, data.pixels_longer, data.pixels_colours, not data.images)


def shown_to(recipe: Recipe | None, store: Store) -> Store:
    """Return the store as a model of this recipe sees it: without images if data.images is false."""
    return store if recipe is None or recipe.data.images else store.without_images()
