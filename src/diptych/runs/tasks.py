"""What a recipe's `task` means: what is read and asked, and which score shall rise. `TASKS` is the whole list."""

from __future__ import annotations

from collections.abc import Callable

from diptych.core import Task
from diptych.errors import RecipeError, nearest
from diptych.loading.tokens import Tokens
from diptych.recipes.objectives import RetrievalObjectives, VqaObjectives
from diptych.recipes.recipe import Recipe
from diptych.tasks.caption import Captioning
from diptych.tasks.nlvr import Nlvr
from diptych.tasks.referring import Referring
from diptych.tasks.retrieval import Retrieval
from diptych.tasks.two_towers import TwoTowerRetrieval
from diptych.tasks.vcr import Vcr
from diptych.tasks.vqa import Answers, Vqa

Builder = Callable[[Recipe, Tokens, Answers | None], Task]


def _captioning(recipe: Recipe, tokens: Tokens, _: Answers | None) -> Task:
    return Captioning(tokens, recipe.decoding, recipe.data.max_words)


def _question_answering(recipe: Recipe, tokens: Tokens, answers: Answers | None) -> Task:
    if answers is None:
        raise RecipeError("this model has no list of answers: fine-tune it first, `diptych finetune vqa`")
    exclusive = isinstance(recipe.objectives, VqaObjectives) and recipe.objectives.form == "softmax"
    return Vqa(tokens, answers, recipe.data.max_words, recipe.model.answer_slot, exclusive)


def _retrieval(recipe: Recipe, tokens: Tokens, _: Answers | None) -> Task:
    if isinstance(recipe.objectives, RetrievalObjectives):  # pairs, each read together; else by a vector of each
        return Retrieval(tokens, recipe.data.max_words, recipe.model.max_regions)
    return TwoTowerRetrieval(tokens, recipe.data.max_words)


def _visual_reasoning(recipe: Recipe, tokens: Tokens, _: Answers | None) -> Task:
    return Vcr(tokens, recipe.data.max_words)


def _referring(recipe: Recipe, tokens: Tokens, _: Answers | None) -> Task:
    return Referring(tokens, recipe.data.max_words)


def _reasoning(recipe: Recipe, tokens: Tokens, _: Answers | None) -> Task:
    return Nlvr(tokens, recipe.data.max_words)


TASKS: dict[str, Builder] = {
    "pretrain": _captioning,  # its samples are pictures with their captions
    "caption": _captioning,
    "vqa": _question_answering,
    "retrieval": _retrieval,
    "vcr": _visual_reasoning,
    "referring": _referring,
    "nlvr": _reasoning,
}
# What validation wants to rise.
SCORES = {
    "pretrain": "likelihood",
    "caption": "CIDEr",
    "vqa": "accuracy",
    "retrieval": "pictures R@1",
    "vcr": "Q->AR",
    "referring": "accuracy",
    "nlvr": "accuracy",
}


def make_task(recipe: Recipe, tokens: Tokens, answers: Answers | None) -> Task:
    if recipe.task not in TASKS:
        raise RecipeError(f"no task {recipe.task!r} is built yet; {nearest(recipe.task, TASKS)}")
    return TASKS[recipe.task](recipe, tokens, answers)
