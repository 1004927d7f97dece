"""Cases of `diptych.testing` with the words of `deciding`."""

from typing import Any

from diptych.systems import RECIPES, Recipe
from diptych.testing import Case
from tests.support.deciding import TOKENS

# What makes the small shape of a system smaller, where the helper's own sizes do not.
SMALLER: dict[str, dict[str, Any]] = {
    "vl-bert": {"coordinates": 4},
    "tden": {"object_layers": 1, "sentence_layers": 1, "cross_layers": 2, "decoder_layers": 1, "similarity_width": 16},
}


def case_of(recipe: Recipe | str, **options: Any) -> Case:
    """With the words of tests/support/deciding.py."""
    recipe = RECIPES[recipe]() if isinstance(recipe, str) else recipe
    return Case.of(recipe, tokens=TOKENS, shape=SMALLER.get(recipe.system), **options)
