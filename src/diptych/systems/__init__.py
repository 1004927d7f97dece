"""One folder a system, and what a run of it is: recipes, objectives, the papers' tables.

`SYSTEMS` is the only list of systems: the recipes, objectives, importers and tables follow from its entries.
"""

from collections.abc import Iterable

from diptych.models.checkpoint import MARKS
from diptych.runtime.errors import RecipeError, nearest
from diptych.systems.image_bert import SYSTEM as IMAGE_BERT
from diptych.systems.ledger import papers
from diptych.systems.preset import Preset, StagedPreset
from diptych.systems.recipe import ANY_WORDS, Recipe
from diptych.systems.shared import small_task
from diptych.systems.stages import Stages
from diptych.systems.system import OBJECTIVES, SYSTEMS, Importer, System
from diptych.systems.tden import SYSTEM as TDEN
from diptych.systems.unified_vlp import SYSTEM as UNIFIED_VLP
from diptych.systems.vl_bert import SYSTEM as VL_BERT
from diptych.systems.xgpt import SYSTEM as XGPT
from diptych.tasks import TASKS, TaskSpec

__all__ = [
    "LISTED",
    "OBJECTIVES",
    "RECIPES",
    "STAGED",
    "SYSTEMS",
    "Importer",
    "Preset",
    "Recipe",
    "StagedPreset",
    "Stages",
    "System",
    "add_system",
    "add_task",
    "find_recipe",
    "find_stages",
    "hindrance",
    "papers",
]

LISTED = "`diptych recipes` lists all"
RECIPES: dict[str, Preset] = {}
STAGED: dict[str, StagedPreset] = {}  # recipes of several stages


def add_system(system: System) -> None:
    """Add a system, its objectives and its recipes to the tables, and those of the tasks that it can learn."""
    SYSTEMS[system.name] = system
    OBJECTIVES[system.name] = system.objectives
    if system.importer is not None:
        MARKS.update(dict.fromkeys(system.importer.marks, system.title))
    for preset in system.recipes:
        if isinstance(preset, StagedPreset):
            STAGED[preset.name] = preset
        else:
            assert isinstance(preset, Preset), f"{system.name}: {preset!r} is no Preset"
            RECIPES[preset.name] = preset
    for spec in TASKS.values():
        _add_small(system, spec)


def add_task(spec: TaskSpec) -> None:
    """Add a task, its objectives, and a small recipe of it for all systems that can learn it."""
    TASKS[spec.name] = spec
    OBJECTIVES.update({kind.model_fields["kind"].default: kind for kind in spec.training.objectives})
    for system in SYSTEMS.values():
        _add_small(system, spec)


def _add_small(system: System, spec: TaskSpec) -> None:
    """`SYSTEM/small/TASK` by what the task says of itself, where the system can learn it and has none of its own."""
    name = f"{system.name}/small/{spec.name}"
    if name not in RECIPES and hindrance(system, spec) is None:
        RECIPES[name] = small_task(RECIPES[f"{system.name}/small/pretrain"], spec.name)


def hindrance(system: System, spec: TaskSpec) -> str | None:
    """Why there is no small recipe of the task for the system; None: nothing is in the way."""
    pretrain = RECIPES.get(f"{system.name}/small/pretrain")
    if spec.training.small is None or pretrain is None:
        return f"{spec.name if spec.training.small is None else system.name} says nothing of small recipes"
    try:
        spec.training.small.objectives.schedule(ANY_WORDS).check(system.model.provided(pretrain.model), system.name)
    except RecipeError as error:
        return str(error).partition(";")[0]
    return None


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
