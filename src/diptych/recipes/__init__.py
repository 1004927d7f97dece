"""The only place where everything meets. `RECIPES` is the whole list."""

from collections.abc import Callable, Iterable
from functools import partial

from diptych.errors import RecipeError, nearest
from diptych.recipes import image_bert, tden, unified_vlp, vl_bert
from diptych.recipes.recipe import Recipe

_MAKERS: list[Callable[[], Recipe]] = [
    *(partial(unified_vlp.paper, task) for task in unified_vlp.TASKS),
    *(partial(unified_vlp.official, task) for task in unified_vlp.TASKS),
    *(partial(unified_vlp.small, task) for task in unified_vlp.TASKS),
    *(partial(unified_vlp.with_lambda, share) for share in unified_vlp.LAMBDAS),
    unified_vlp.region_class_pretext,
    partial(unified_vlp.masked_queries, "paper"),
    partial(unified_vlp.masked_queries, "small"),
    unified_vlp.retrieval,
    *(partial(make, task) for make in (image_bert.paper, image_bert.small) for task in image_bert.TASKS),
    *(partial(image_bert.with_losses, losses) for losses in image_bert.LOSSES),
    *(partial(image_bert.changed, name) for name in image_bert.CHANGES),
    *(partial(unified_vlp.self_critical, size) for size in ("paper", "official", "small")),
    *(partial(tden.self_critical, size) for size in ("paper", "official", "small")),
    *(partial(make, task) for make in (tden.paper, tden.official, tden.small) for task in tden.TASKS),
    *(partial(tden.structured, kind, size) for size in ("paper", "small") for kind in tden.STRUCTURES),
    *(partial(tden.table_2, row, size) for size in ("paper", "small") for row in tden.ROWS),
    *(partial(make, task) for make in (vl_bert.paper, vl_bert.official, vl_bert.large) for task in vl_bert.PUBLISHED),
    *(partial(vl_bert.small, task) for task in vl_bert.TASKS),
]
RECIPES: dict[str, Callable[[], Recipe]] = {make().name: make for make in _MAKERS}


def find_recipe(name: str, assignments: Iterable[str] = ()) -> Recipe:
    if name not in RECIPES:
        raise RecipeError(f"no recipe {name!r}; {nearest(name, RECIPES)}")
    return RECIPES[name]().override(tuple(assignments))


__all__ = ["RECIPES", "Recipe", "find_recipe"]
