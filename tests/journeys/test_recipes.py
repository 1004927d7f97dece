"""`diptych recipes` as a user runs it, and the seeds of a run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diptych.runtime.weight_files import read_weights
from diptych.systems import RECIPES, STAGED, find_recipe
from tests.journeys.conftest import tiny


def test_the_list_as_a_table_and_as_json(run: Callable[..., Any]) -> None:
    result = run("recipes", "tden/small/*")
    assert result.code == 0
    header, *rows = result.out.splitlines()
    assert header.split("\t") == ["recipe", "task", "what it is", "rows in", "steps", "batch"]
    assert all(row.startswith("tden/small/") and row.count("\t") == 5 for row in rows)
    listed = json.loads(run("recipes", "--json").out)
    assert [one["name"] for one in listed] == sorted({*RECIPES, *STAGED})
    assert set(listed[0]) == {
        "name",
        "system",
        "task",
        "about",
        "epochs",
        "steps",
        "batch",
        "samples",
        "authors",
        "tables",
        "command",
    }


def test_one_recipe_key_by_key(run: Callable[..., Any]) -> None:
    result = run("recipes", "tden/small/caption")
    shown = json.loads(result.out)
    assert shown["optimizer.lr"]["value"] == find_recipe("tden/small/caption").optimizer.lr
    refused = run("recipes", "tden/smal/caption")
    assert (refused.code, "did you mean tden/small/caption" in refused.error) == (2, True)


def test_the_seed_is_that_of_the_training(world: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    """With a store too: two seeds train different weights, the same seed the same."""

    def weights(out: str, *seed: object) -> dict[str, Any]:
        recipe = ("pretrain", "unified-vlp/small/pretrain", "--data", world, "--out", tmp_path / out)
        result = run(*recipe, *tiny(**{"training.steps": 2, "training.validate_every": "null"}), *seed)
        assert result.code == 0, result.error
        return read_weights(tmp_path / out / "model" / "model.safetensors")

    first, same, other = weights("first", "--seed", 1), weights("same", "--seed", 1), weights("other", "--seed", 2)
    assert all(first[name].equal(same[name]) for name in first)
    assert not first["encoder.layers.0.attention.qkv.weight"].equal(other["encoder.layers.0.attention.qkv.weight"])
    assert json.loads((tmp_path / "other" / "recipe.json").read_text())["training"]["seed"] == 2
    again = run("pretrain", "unified-vlp/small/pretrain", "--data", world, "--out", tmp_path / "other", "--seed", 3)
    assert (again.code, "training.seed: 3, was 2" in again.error) == (2, True)
