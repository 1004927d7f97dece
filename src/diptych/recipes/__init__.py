"""Everything that can be trained. `RECIPES` is the whole list: what each system's presets list as `MAKERS`."""

from collections.abc import Callable, Iterable

from diptych.errors import RecipeError, nearest
from diptych.recipes.presets import image_bert, tden, unified_vlp, vl_bert, xgpt
from diptych.recipes.recipe import Recipe
from diptych.recipes.stages import Stages

LISTED = "`diptych recipes` lists all"
_SYSTEMS = (unified_vlp, image_bert, tden, vl_bert, xgpt)
RECIPES: dict[str, Callable[[], Recipe]] = {make().name: make for system in _SYSTEMS for make in system.MAKERS}
# Those of several stages.
STAGED: dict[str, Callable[[], Stages]] = {make().name: make for make in image_bert.STAGED}


def find_recipe(name: str, assignments: Iterable[str] = ()) -> Recipe:
    """The recipe of this name with `KEY=VALUE` assignments; RecipeError names the nearest one where there is none."""
    if name not in RECIPES:
        raise RecipeError(f"no recipe {name!r}; {nearest(name, RECIPES, LISTED)}")
    return RECIPES[name]().override(tuple(assignments))


def find_stages(name: str, assignments: Iterable[str] = ()) -> Stages:
    """A recipe of several stages, or of one."""
    if name in STAGED:
        return STAGED[name]().override(tuple(assignments))
    if name not in RECIPES:
        raise RecipeError(f"no recipe {name!r}; {nearest(name, [*RECIPES, *STAGED], LISTED)}")
    return Stages(name, (find_recipe(name, assignments),))


__all__ = ["RECIPES", "STAGED", "Recipe", "Stages", "find_recipe", "find_stages"]
