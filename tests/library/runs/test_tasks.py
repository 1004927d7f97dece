"""The table of tasks: every recipe has one, and what a vocabulary learns covers what the tasks read."""

from types import SimpleNamespace
from typing import Any

import pytest

from diptych.core import Choices, Expression, Object, Question, Record, Statement
from diptych.data.store.tokens import Tokens
from diptych.runs.predict import readable
from diptych.runs.words import words_of
from diptych.runtime.errors import RecipeError
from diptych.systems import RECIPES
from diptych.tasks import TASKS
from diptych.tasks.answers import Answers
from tests.support import toy

TOKENS = Tokens.train(["a dog"])


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_has_a_task_and_a_score_that_shall_rise(name: str) -> None:
    recipe = RECIPES[name]()
    assert recipe.task_with(TOKENS, Answers(("<unk>", "yes"), task=recipe.task)).samples(Record("a")) == []
    assert TASKS[recipe.task].training.watched


def test_a_model_without_answers_cannot_be_asked() -> None:
    with pytest.raises(RecipeError, match="no list of answers; fine-tune it: diptych finetune vqa"):
        RECIPES["unified-vlp/small/vqa"]().task_with(TOKENS, None)


def test_the_words_of_every_task_are_learnt() -> None:
    record = Record(
        "a",
        captions=("one",),
        questions=(Question("q", "two", ("no",)),),
        expressions=(Expression("e", "three", (0.0, 0.0, 1.0, 1.0)),),
        choices=(Choices("c", "four [0]", ("five", "six"), 0, ("seven [0]", "eight"), 1),),
        statements=(Statement("s", "nine", True),),
        objects=(Object("dog", (0.0, 0.0, 1.0, 1.0)),),
    )
    wanted = ["one", "two", "three", "four dog", "five", "six", "seven dog", "eight", "nine"]
    assert words_of(record) == wanted


def test_a_model_reads_as_many_regions_as_it_takes() -> None:
    store: Any = SimpleNamespace(record=lambda number: Record("a", regions=toy.regions(5, number)))
    (one,), damaged = readable(store, [3], 2, None)
    assert one.regions is not None
    assert (len(one.regions), damaged) == (2, ())
