"""The task of a recipe or of a model folder, its image reader and its records."""

from diptych.core import Task
from diptych.data.store.pixels import Pixels
from diptych.data.store.store import Store, check_split
from diptych.data.store.tokens import Tokens
from diptych.runs.folder import ModelFolder
from diptych.runtime.errors import RecipeError
from diptych.runtime.plugins import note_use
from diptych.systems.recipe import Recipe
from diptych.tasks import TaskSpec, find_learnt, find_task
from diptych.tasks.answers import Answers
from diptych.tasks.spec import TaskOptions


def make_task(recipe: Recipe, tokens: Tokens, answers: Answers | None, spec: TaskSpec | None = None) -> Task:
    """Build the recipe's task, or another one, with the recipe's settings."""
    shape, objectives, spec = recipe.model, recipe.objectives, spec or find_task(recipe.task)
    answers = answers if answers is not None and answers.task == spec.name else None
    options = TaskOptions(
        tokens, answers, recipe.decoding, recipe.data.max_words, recipe.data.split_words, shape.max_regions,
        shape.answer_slot, objectives.answer_form, objectives.reads_pairs,
    )  # fmt: skip
    note_use({"objectives": [objectives.kind], "tasks": [spec.name]})
    return spec.build(options)


def task_of(folder: ModelFolder, name: str | None = None) -> Task:
    """Build the task that a model was trained for, or another by name. RecipeError if it was not trained for it."""
    if folder.recipe is None:
        raise RecipeError(f"{folder.name} was imported and has no task yet: diptych finetune {name or 'caption'}")
    spec = find_learnt(name) if name is not None else find_task(folder.recipe.task)
    if not spec.has_learnt(folder.model):
        what = name or f"a task ({folder.architecture.system} has no decoder for captions)"
        command = f"diptych finetune {name or 'TASK'} --data DATA --model {folder.name} --out RUN"
        raise RecipeError(f"{folder.name} was not trained for {what}: {command}")
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


def in_split(store: Store, split: str, option: str) -> list[int]:
    """Return the numbers of the records of one or more splits. Raises DataError for an empty one.

    `option`: command-line option that chooses the split, for the error.
    """
    check_split(split, store.folder, store.splits, f"; choose with {option}")
    return store.split(split)
