"""The list of recipes, and one of them key by key."""

import json

import pytest

from diptych.errors import RecipeError
from diptych.recipes import RECIPES, STAGED, find_recipe, find_stages
from diptych.recipes.catalogue import entries, settings


def test_all_recipes_are_listed_once_with_what_they_are() -> None:
    listed = entries()
    assert [entry.name for entry in listed] == sorted({*RECIPES, *STAGED})
    for entry in listed:
        assert len(entry.about.split()) >= 4, entry
        assert entry.about.endswith("."), entry


def test_a_part_of_a_name_and_a_pattern_choose() -> None:
    assert {entry.system for entry in entries("TDEN/small")} == {"tden"}
    assert {entry.name.split("/")[0] for entry in entries("*/small/nlvr")} == {e.system for e in entries()}
    (entry,) = entries("vl-bert/official/vcr")
    recipe = find_recipe("vl-bert/official/vcr")
    assert (entry.task, entry.steps, entry.batch) == ("vcr", recipe.training.steps, recipe.training.batch)


def test_stages_count_their_steps_together() -> None:
    (name,) = (name for name in STAGED if "small" in name)
    (entry,) = entries(name)
    assert entry.steps == sum(recipe.training.steps for recipe in find_stages(name).recipes) > 0


def test_what_names_no_recipe_is_refused_with_the_nearest_or_the_way_to_the_list() -> None:
    with pytest.raises(RecipeError, match="did you mean unified-vlp/small/caption"):
        entries("unified-vlp/smal/caption")
    with pytest.raises(RecipeError, match=r"no recipe has 'uniter' in its name; `diptych recipes` lists all$"):
        entries("uniter")


def test_the_keys_of_a_recipe_are_those_that_can_be_set() -> None:
    """Set to what is shown, every key leaves the recipe as it is."""
    name = "vl-bert/small/end-to-end"
    shown = settings(name)
    given = [f"{key}={json.dumps(told['value'])}" for key, told in shown.items() if key != "objectives.kind"]
    assert find_recipe(name, given) == find_recipe(name)
    assert (shown["optimizer.lr"]["value"], shown["optimizer.lr"]["default"]) == (2e-3, 1e-4)
    assert "default" not in shown["training.steps"]
    assert shown["optimizer.clip_each"]["default"] is None
    assert shown["data.max_words"]["note"] == "Tokens of a text at most; what is longer is cut."


def test_keys_of_stages_begin_with_the_stage_s_number() -> None:
    name = "image-bert/small/pretrain/web-then-train"
    shown = settings(name)
    assert [shown[f"{stage}.data.split"]["value"] for stage in (1, 2)] == ["web", "train"]
    assert find_stages(name, ["2.data.split=val"]).recipes[1].data.split == "val"


def test_every_key_of_every_recipe_has_a_note() -> None:
    silent = {key: name for name in RECIPES for key, told in settings(name).items() if "note" not in told}
    assert not silent
