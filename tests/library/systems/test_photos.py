"""Recipes for photographs: those of the small ones, with what photographs want in their place."""

from __future__ import annotations

import pytest

from diptych.systems import RECIPES, SYSTEMS, find_recipe

PHOTOS = sorted(name for name in RECIPES if "/photos/" in name)
CHANGED = {"name", "model.positions", "training.steps", "training.epochs",
           "training.validate_every", "training.checkpoint_every",
           "training.patience", "data.max_words", "data.validation_records", "decoding.beams", "decoding.max_words",
           "decoding.no_repeat_ngram", "model.dropout", "model.attention_dropout"}  # fmt: skip


ANSWERING = {"vqa", "retrieval", "entailment"}


def test_each_system_has_those_of_answering_and_some_write() -> None:
    tasks = {
        system: {name.rpartition("/")[2] for name in PHOTOS if name.startswith(f"{system}/")} for system in SYSTEMS
    }
    assert tasks == {
        system: {"pretrain", *ANSWERING} | ({"caption"} if system in ("unified-vlp", "tden", "xgpt") else set())
        for system in SYSTEMS
    }


@pytest.mark.parametrize("name", [name for name in PHOTOS if name.rpartition("/")[2] in ANSWERING])
def test_answering_lasts_by_epochs_and_is_validated_on_the_whole_split(name: str) -> None:
    recipe = find_recipe(name)
    assert (recipe.training.epochs, recipe.training.validate_every, recipe.data.validation_records) == (6, 100, None)
    assert find_recipe(name, ["training.steps=7"]).training.epochs is None


@pytest.mark.parametrize("name", PHOTOS)
def test_nothing_else_differs_from_the_small_ones(name: str) -> None:
    recipe, small = find_recipe(name), find_recipe(name.replace("/photos/", "/small/"))
    assert {line.partition(":")[0] for line in recipe.differences(small)} <= CHANGED
    assert (recipe.data.max_words, recipe.decoding.no_repeat_ngram, recipe.training.patience) == (30, 3, 4)
    assert recipe.model.positions >= recipe.model.max_regions + recipe.data.max_words + 3  # type: ignore[attr-defined]
