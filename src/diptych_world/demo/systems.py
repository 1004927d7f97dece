"""The tasks and the pre-training recipe of each system in the demo."""

from diptych.runtime.errors import nearest
from diptych.runtime.plugins import unknown_name
from diptych.systems import RECIPES, SYSTEMS, find_recipe
from diptych.systems.recipe import Recipe

DEFAULT = "unified-vlp"


def tasks_of(system: str) -> tuple[str, ...]:
    """Return the demo's two tasks: caption and vqa, or vqa and nlvr if the system cannot caption.

    Raises RecipeError for an unknown system.
    """
    if system not in SYSTEMS:
        raise unknown_name(f"no system {system!r}; {nearest(system, SYSTEMS)}")
    return tuple(task for task in ("caption", "vqa", "nlvr") if f"{system}/small/{task}" in RECIPES)[:2]


def begin_with(system: str) -> Recipe:
    """Return the small recipe of pre-training.

    Unified VLP uses its recipe with masked queries (docs/decisions/0005).
    """
    tasks_of(system)
    return find_recipe(f"{system}/small/pretrain" + ("/queries" if system == DEFAULT else ""))


def layers_of(system: str, layers: int) -> tuple[str, ...]:
    """Return the setting of the number of layers.

    For TDEN it is empty, because TDEN has four stacks with separate numbers of layers.
    """
    return (f"model.layers={layers}",) if "layers" in SYSTEMS[system].config.model_fields else ()
