"""Answers are given of what was seen, or not at all."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from diptych.errors import DataError
from diptych.loading.extract import extract
from diptych.loading.store import Store
from diptych.recipes import RECIPES, find_recipe
from diptych.runs.prepare import plan
from diptych.runs.tasks import make_task
from diptych.sources.storybook import record, scene
from diptych.tasks.answers import Answers
from diptych.tasks.run import ask
from diptych.vision.ground_truth import GroundTruth
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


def test_the_recipe_cuts_the_list_of_answers(tmp_path: Path) -> None:
    records = [record(scene(0, "train", number)) for number in range(12)]
    extract(records, GroundTruth.of(records), tmp_path / "store")
    every = Answers.of(records).names
    counts = {least: len(Answers.of(records, least).names) for least in (1, 3)}
    assert counts[3] < counts[1] == len(every)

    def names(*settings: str) -> tuple[str, ...]:
        recipe = find_recipe("vl-bert/small/vqa", ["training.validate_every=null", *settings])
        answers = plan(recipe, Store(tmp_path / "store"), tmp_path / "run", None).answers
        assert answers is not None
        return answers.names

    assert names() == every
    assert names("data.answers_most=2") == every[:3], "the two most frequent, after the one that stands for all others"
    assert names("data.answers_at_least=3") == Answers.of(records, 3).names
