"""The only place where everything meets. `RECIPES` is the whole list."""

from collections.abc import Callable, Iterable
from functools import partial

from diptych.errors import RecipeError, nearest
from diptych.recipes.presets import decisions, image_bert, tden, unified_vlp, vl_bert, xgpt
from diptych.recipes.recipe import Recipe
from diptych.recipes.stages import Stages

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
    *(partial(image_bert.on, "paper", split) for split in image_bert.ONE_STAGE["paper"]),
    *(partial(image_bert.on, "small", split) for split in image_bert.ONE_STAGE["small"]),
    *(partial(unified_vlp.self_critical, size) for size in ("paper", "official", "small")),
    xgpt.self_critical,
    *(partial(tden.self_critical, size) for size in ("paper", "official", "small")),
    *(partial(tden.paper, task) for task in tden.PUBLISHED),
    *(partial(make, task) for make in (tden.official, tden.small) for task in tden.TASKS),
    *(partial(tden.structured, kind, size) for size in ("paper", "small") for kind in tden.STRUCTURES),
    *(partial(tden.table_2, row, size) for size in ("paper", "small") for row in tden.ROWS),
    *(partial(make, task) for make in (vl_bert.paper, vl_bert.official, vl_bert.large) for task in vl_bert.PUBLISHED),
    *(partial(vl_bert.small, task) for task in vl_bert.TASKS),
    *(partial(vl_bert.with_text, size) for size in ("iclr", "official", "small")),
    *(partial(vl_bert.end_to_end, size) for size in ("official", "small")),
    *(partial(make, task) for make in (xgpt.paper, xgpt.small) for task in xgpt.TASKS),
    *(partial(xgpt.table_2, row, size) for size in xgpt.SIZES for row in xgpt.ROWS),
    *(partial(xgpt.table_3, depth, structure) for depth, structure in xgpt.STRUCTURES),
    *(partial(xgpt.table_3_small, structure) for structure in ("enc", "encdec", "encdec-share")),
    *(partial(xgpt.table_4, masks, size) for size in xgpt.SIZES for masks in ("single", "multi")),
    *(
        partial(decisions.small, system.small, task)
        for system in (unified_vlp, vl_bert, image_bert, tden, xgpt)
        for task in decisions.TASKS
    ),
]
RECIPES: dict[str, Callable[[], Recipe]] = {make().name: make for make in _MAKERS}
# Those of several stages.
STAGED: dict[str, Callable[[], Stages]] = {
    make().name: make for make in (partial(image_bert.two_stages, "paper"), partial(image_bert.two_stages, "small"))
}


def find_recipe(name: str, assignments: Iterable[str] = ()) -> Recipe:
    """The recipe of this name with `KEY=VALUE` assignments; RecipeError names the nearest one where there is none."""
    if name not in RECIPES:
        raise RecipeError(f"no recipe {name!r}; {nearest(name, RECIPES)}")
    return RECIPES[name]().override(tuple(assignments))


def find_stages(name: str, assignments: Iterable[str] = ()) -> Stages:
    """A recipe of several stages, or of one."""
    if name in STAGED:
        return STAGED[name]().override(tuple(assignments))
    if name not in RECIPES:
        raise RecipeError(f"no recipe {name!r}; {nearest(name, [*RECIPES, *STAGED])}")
    return Stages(name, (find_recipe(name, assignments),))


__all__ = ["RECIPES", "STAGED", "Recipe", "Stages", "find_recipe", "find_stages"]
