"""The only place where everything meets. `RECIPES` is the whole list."""

from collections.abc import Callable, Iterable
from functools import partial

from diptych.errors import RecipeError, nearest
from diptych.recipes import unified_vlp
from diptych.recipes.recipe import Recipe

RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe().name: recipe
    for recipe in (
        *(partial(make, task) for make in (unified_vlp.paper, unified_vlp.official, unified_vlp.small)
          for task in ("pretrain", "caption", "vqa")),
        *(partial(unified_vlp.with_lambda, share) for share in unified_vlp.LAMBDAS),
        unified_vlp.region_class_pretext,
        partial(unified_vlp.masked_queries, "paper"),
        partial(unified_vlp.masked_queries, "small"),
    )
}  # fmt: skip


def find_recipe(name: str, assignments: Iterable[str] = ()) -> Recipe:
    if name not in RECIPES:
        raise RecipeError(f"no recipe {name!r}; {nearest(name, RECIPES)}")
    return RECIPES[name]().override(tuple(assignments))


__all__ = ["RECIPES", "Recipe", "find_recipe"]
