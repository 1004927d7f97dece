"""Recipes for photographs: those of the small ones, with what photographs want in their place."""

from __future__ import annotations

import pytest

from diptych.systems import RECIPES, find_recipe

PHOTOS = sorted(name for name in RECIPES if "/photos/" in name)
CHANGED = {"name", "model.positions", "training.steps", "training.validate_every", "training.checkpoint_every",
           "training.patience", "data.max_words", "data.validation_records", "decoding.beams", "decoding.max_words",
           "decoding.no_repeat_ngram", "model.dropout", "model.attention_dropout"}  # fmt: skip


def test_each_system_that_writes_or_searches_has_them() -> None:
    tasks = {name.rpartition("/")[2] for name in PHOTOS}
    assert tasks == {"pretrain", "caption", "retrieval"}
    assert {name.split("/")[0] for name in PHOTOS} == {"unified-vlp", "tden", "xgpt", "image-bert"}


@pytest.mark.parametrize("name", PHOTOS)
def test_nothing_else_differs_from_the_small_ones(name: str) -> None:
    recipe, small = find_recipe(name), find_recipe(name.replace("/photos/", "/small/"))
    assert {line.partition(":")[0] for line in recipe.differences(small)} <= CHANGED
    assert (recipe.data.max_words, recipe.decoding.no_repeat_ngram, recipe.training.patience) == (30, 3, 4)
    assert recipe.model.positions >= recipe.model.max_regions + recipe.data.max_words + 3  # type: ignore[attr-defined]
