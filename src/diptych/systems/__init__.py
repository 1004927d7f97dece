"""One folder a system, and what a run of it is: recipes, objectives, the papers' tables.

`SYSTEMS` is the only list of systems: the recipes, objectives, importers and tables follow from its entries.
"""

from collections.abc import Callable, Iterable

from diptych.runtime.errors import RecipeError, nearest
from diptych.systems.image_bert import SYSTEM as IMAGE_BERT
from diptych.systems.objectives import OBJECTIVES
from diptych.systems.recipe import Recipe
from diptych.systems.stages import Stages
from diptych.systems.system import SYSTEMS, Importer, System, papers
from diptych.systems.tden import SYSTEM as TDEN
from diptych.systems.unified_vlp import SYSTEM as UNIFIED_VLP
from diptych.systems.vl_bert import SYSTEM as VL_BERT
from diptych.systems.xgpt import SYSTEM as XGPT

__all__ = [
    "LISTED",
    "RECIPES",
    "STAGED",
    "SYSTEMS",
    "Importer",
    "Recipe",
    "Stages",
    "System",
    "add_system",
    "find_recipe",
    "find_stages",
    "papers",
]

LISTED = "`diptych recipes` lists all"
RECIPES: dict[str, Callable[[], Recipe]] = {}
STAGED: dict[str, Callable[[], Stages]] = {}  # recipes of several stages


def add_system(system: System) -> None:
    """Add a system, its objectives and its recipes to the tables."""
    SYSTEMS[system.name] = system
    OBJECTIVES[system.name] = system.objectives
    for make in system.recipes():
        made = make()
        (STAGED if isinstance(made, Stages) else RECIPES)[made.name] = make


for _system in (UNIFIED_VLP, VL_BERT, IMAGE_BERT, TDEN, XGPT):
    add_system(_system)


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
