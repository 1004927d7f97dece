"""Every recipe builds, saves and loads, and its model has what its objectives need."""

from pathlib import Path

import pytest
import torch

from diptych.core import Vocabulary
from diptych.systems import RECIPES, SYSTEMS, Recipe

VOCABULARY = Vocabulary(30, 0, 1, 2, 3, 4)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds(name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]()
    assert recipe.name == name
    recipe.save(tmp_path)
    assert Recipe.load(tmp_path) == recipe
    schedule = recipe.objectives.schedule(VOCABULARY)
    with torch.device("meta"):  # sizes alone: base-size weights take a second each
        system = SYSTEMS[recipe.system]
        model = system.model(
            system.resolved(**recipe.model.model_dump(), vocabulary=VOCABULARY, answers=3), schedule.heads
        )
    schedule.check(model.provides, name)
    assert set(schedule.heads) <= set(model.heads)


def test_no_copy_goes_unvalidated() -> None:
    """pydantic's `model_copy(update=...)` takes keys that do not exist and values that cannot be; `derive` does not."""
    root = Path(__file__).parents[2] / "src"
    assert [str(path) for path in root.rglob("*.py") if "model_copy(update" in path.read_text("utf-8")] == []
