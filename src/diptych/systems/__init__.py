"""The systems. Each has a folder with its model, importer, objectives, recipes, and the tables of its paper.

`SYSTEMS` is the only list of systems. All lists of recipes, objectives, importers and tables are derived from it.
"""

import sys
from collections.abc import Container, Iterable, Sequence

from diptych.models import HEADS
from diptych.models.heads import label_head
from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.packages import OWN
from diptych.runtime.plugins import plugins, unknown_name
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
from diptych.vision.detectors.selection import SELECTIONS, Selection

__all__ = [
    "LISTED", "OBJECTIVES", "RECIPES", "STAGED", "SYSTEMS",
    "Importer", "Preset", "Recipe", "StagedPreset", "Stages", "System",
    "add_system", "add_task", "find_recipe", "find_selection", "find_stages", "hindrance", "papers",
]  # fmt: skip

LISTED = "`diptych recipes` lists all"
RECIPES: dict[str, Preset] = {}
STAGED: dict[str, StagedPreset] = {}  # {name: recipe of several stages}
# {(`systems`, `tasks`, `recipes` or `objectives`; name): the module that added it}.
_ADDED_BY: dict[tuple[str, str], str] = {}


def add_system(system: System) -> None:
    """Add a system to `SYSTEMS`, with its objectives and recipes.

    Also add a small recipe for each task that the system can learn and that has no small recipe yet.

    If the same module adds the system again, the new entry replaces the old one. Raises RecipeError if another module
    has added a system, recipe or objectives of the same name.
    """
    _note_owner("systems", [system.name], SYSTEMS)
    _note_owner("recipes", [preset.name for preset in system.recipes], RECIPES.keys() | STAGED.keys())
    _note_owner("objectives", [system.name], OBJECTIVES)
    SYSTEMS[system.name] = system
    OBJECTIVES[system.name] = system.objectives
    for preset in system.recipes:
        if isinstance(preset, StagedPreset):
            STAGED[preset.name] = preset
        else:
            assert isinstance(preset, Preset), f"{system.name}: {preset!r} is not a Preset"
            RECIPES[preset.name] = preset
    for spec in TASKS.values():
        _add_small(system, spec)


def add_task(spec: TaskSpec) -> None:
    """Add a task to `TASKS`, with its objectives. Also add a small recipe for each system that can learn it.

    If the same module adds the task again, the new entry replaces the old one. Raises RecipeError if another module has
    added a task or objectives of the same name.
    """
    _note_owner("tasks", [spec.name], TASKS)
    kinds = {kind.model_fields["kind"].default: kind for kind in spec.training.objectives}
    _note_owner("objectives", [name for name, kind in kinds.items() if OBJECTIVES.get(name) is not kind], OBJECTIVES)
    TASKS[spec.name] = spec
    if spec.training.answers is not None:  # if a task has a list of labels, it gets a classification head by default
        HEADS.setdefault(spec.head, label_head)
    OBJECTIVES.update(kinds)
    for system in SYSTEMS.values():
        _add_small(system, spec)


def _note_owner(word: str, names: Sequence[str], taken: Container[str]) -> None:
    """Record the module that calls `add_system` or `add_task` as the owner of `names`.

    `word`: the kind of the names, such as "recipes", for the error. Raises RecipeError if another module owns one of
    the names.
    """
    module = sys._getframe(2).f_globals["__name__"]
    for name in names:
        if name in taken and (owner := _ADDED_BY.get((word, name), __name__)) != module:
            adds = f"{_title(module)} adds the name {name} to {word}"
            raise RecipeError(f"{adds}, but this name belongs to {_title(owner)}: choose another name")
    _ADDED_BY.update({(word, name): module for name in names})


def _title(module: str) -> str:
    """Return the package and version of a module, or the module's name if it is not from an installed plugin."""
    root = module.partition(".")[0]
    titles = dict.fromkeys(OWN, "Diptych") | {one.module.partition(".")[0]: one.title for one in plugins()}
    return titles.get(root, module)


def _add_small(system: System, spec: TaskSpec) -> None:
    """Add the recipe `SYSTEM/small/TASK`, if the system can learn the task and has no such recipe yet."""
    name = f"{system.name}/small/{spec.name}"
    if name not in RECIPES and hindrance(system, spec) is None:
        RECIPES[name] = small_task(RECIPES[f"{system.name}/small/pretrain"], spec.name)
        _ADDED_BY["recipes", name] = _ADDED_BY["systems", system.name]


def hindrance(system: System, spec: TaskSpec) -> str | None:
    """Return the reason why the system cannot have a small recipe for the task, or None if it can."""
    if (reason := system.declines.get(spec.name)) is not None:
        return f"{system.name} declines {spec.name}: {reason}"
    pretrain = RECIPES.get(f"{system.name}/small/pretrain")
    if spec.training.small is None or pretrain is None:
        return f"{spec.name if spec.training.small is None else system.name} defines no small recipes"
    try:
        provided = system.model.provided(pretrain.model)
        spec.training.small.objectives.schedule(ANY_WORDS).check(provided, system.name, system.model)
    except RecipeError as error:
        return str(error).partition(";")[0]
    return None


for _system in (UNIFIED_VLP, VL_BERT, IMAGE_BERT, TDEN, XGPT):
    add_system(_system)


def find_recipe(name: str, assignments: Iterable[str] = ()) -> Recipe:
    """Return the recipe `name` with assignments `KEY=VALUE` applied.

    Raises RecipeError if no recipe has this name. The error suggests the most similar names.
    """
    if name not in RECIPES:
        raise unknown_name(f"no recipe {name!r}; {nearest(name, RECIPES, LISTED)}")
    return RECIPES[name]().override(tuple(assignments))


def find_stages(name: str, assignments: Iterable[str] = ()) -> Stages:
    """Return the recipe `name` as a list of one or more stages, with assignments applied.

    Raises RecipeError if no recipe has this name.
    """
    if name in STAGED:
        return STAGED[name]().override(tuple(assignments))
    if name not in RECIPES:
        raise unknown_name(f"no recipe {name!r}; {nearest(name, [*RECIPES, *STAGED], LISTED)}")
    return Stages(name, (find_recipe(name, assignments),))


def find_selection(name: str) -> Selection | int:
    """Return the selection rule `name`, such as `unified-vlp`. If `name` is a number such as `36`, return this number
    of regions. Raises RecipeError if no rule has this name.
    """
    if name.isdecimal():
        return int(name)
    known = dict(SELECTIONS)
    for system in SYSTEMS.values():
        known |= system.rules
    if name not in known:
        raise RecipeError(f"no selection {name!r}; expected a number of regions or a rule; {nearest(name, known)}")
    return known[name]
