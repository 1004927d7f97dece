"""The tasks and the pre-training recipe of each system in the demo. Systems share the drawn world and its regions."""

from diptych.runtime.errors import nearest
from diptych.runtime.plugins import unknown_name
from diptych.systems import RECIPES, SYSTEMS, find_recipe
from diptych.systems.recipe import Recipe

DEFAULT = "unified-vlp"


def tasks_of(system: str) -> tuple[str, ...]:
    """Return caption and vqa, or vqa and nlvr for a system without a decoder. Raises RecipeError."""
    if system not in SYSTEMS:
        raise unknown_name(f"no system {system!r}; {nearest(system, SYSTEMS)}")
    return tuple(task for task in ("caption", "vqa", "nlvr") if f"{system}/small/{task}" in RECIPES)[:2]


def begin_with(system: str) -> Recipe:
    """Return the small recipe of pre-training; for Unified VLP the one with masked queries (decision 0005)."""
    tasks_of(system)
    return find_recipe(f"{system}/small/pretrain" + ("/queries" if system == DEFAULT else ""))


def layers_of(system: str, layers: int) -> tuple[str, ...]:
    """Return the setting for a number of layers; TDEN's four stacks keep those of the recipe."""
    return (f"model.layers={layers}",) if "layers" in SYSTEMS[system].config.model_fields else ()
