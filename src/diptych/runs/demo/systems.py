"""What the demo asks of each system, and how it begins; the drawn world and what was seen in it are shared."""

from diptych.runtime.errors import RecipeError, nearest
from diptych.systems import RECIPES, SYSTEMS, find_recipe
from diptych.systems.recipe import Recipe

DEFAULT = "unified-vlp"


def tasks_of(system: str) -> tuple[str, ...]:
    """Captions and questions; of a system without a decoder questions and statements. Raises RecipeError."""
    if system not in SYSTEMS:
        raise RecipeError(f"no system {system!r}; {nearest(system, SYSTEMS)}")
    return tuple(task for task in ("caption", "vqa", "nlvr") if f"{system}/small/{task}" in RECIPES)[:2]


def begin_with(system: str) -> Recipe:
    """Its small recipe of pre-training; of Unified VLP the one with a query at every word (decision 0005)."""
    tasks_of(system)
    return find_recipe(f"{system}/small/pretrain" + ("/queries" if system == DEFAULT else ""))


def layers_of(system: str, layers: int) -> tuple[str, ...]:
    """As a setting; TDEN's four stacks keep the recipe's."""
    return (f"model.layers={layers}",) if "layers" in SYSTEMS[system].config.model_fields else ()
