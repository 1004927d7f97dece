"""Answers are given of what was seen, or not at all."""

from dataclasses import replace

import pytest
import torch

from diptych.errors import DataError
from diptych.recipes import RECIPES
from diptych.runs.tasks import make_task
from diptych.tasks.answers import Answers
from diptych.tasks.run import ask
from tests.deciding import TOKENS
from tests.tasks.test_overfit import EIGHT, built


def test_features_that_are_not_finite_are_named_and_not_answered() -> None:
    recipe, answers = RECIPES["vl-bert/small/vqa"](), Answers.of(EIGHT)
    task, model = make_task(recipe, TOKENS, answers), built(recipe, answers)
    seen = EIGHT[1].regions
    assert seen is not None
    assert seen.features is not None
    broken = replace(EIGHT[1], regions=replace(seen, features=torch.full_like(seen.features, torch.nan)))
    with pytest.raises(DataError, match=r"scores are not finite.*record p1"):
        ask(task, model, [EIGHT[0], broken])
