"""What recipes there are, and what each is made of: for `diptych recipes`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from diptych.errors import RecipeError, nearest
from diptych.recipes import LISTED, RECIPES, STAGED, find_stages


@dataclass(frozen=True)
class Entry:
    """A recipe in one line of the list."""

    name: str
    system: str
    task: str
    about: str  # what it is, in a sentence
    steps: int  # of all its stages together
    batch: int


def entries(pattern: str = "") -> list[Entry]:
    """All whose name holds `pattern`, or fits it where it has `*`, `?` or `[]`. Raises RecipeError where none does."""
    known = {**RECIPES, **STAGED}
    names = [name for name in known if pattern.lower() in name or fnmatchcase(name, pattern.lower())]
    if not names:
        raise RecipeError(f"no recipe has {pattern!r} in its name; {nearest(pattern, known, LISTED)}")
    return [_entry(name, known[name]) for name in sorted(names)]


def settings(name: str) -> dict[str, dict[str, Any]]:
    """All keys of one recipe, as `--set` takes them: of one in stages they begin with the stage's number.

    Each with its `value`, the `default` of the field where it has one, and a `note` where its meaning is written down.
    """
    recipes = find_stages(name).recipes
    if len(recipes) == 1:
        return dict(_settings(recipes[0], ""))
    return {key: entry for n, recipe in enumerate(recipes, start=1) for key, entry in _settings(recipe, f"{n}.")}


def _entry(name: str, maker: Callable[[], Any]) -> Entry:
    recipes = find_stages(name).recipes
    steps = sum(recipe.training.steps for recipe in recipes)
    first = recipes[0]
    return Entry(name, first.system, first.task, _about(maker), steps, first.training.batch)


def _about(maker: Callable[[], Any]) -> str:
    """The first sentence of the maker's docstring, where it has one."""
    text = inspect.getdoc(maker.func if isinstance(maker, partial) else maker) or ""
    first = " ".join(text.split("\n\n")[0].split()).partition(". ")[0]
    return f"{first.rstrip('.')}." if first else ""


def _settings(config: BaseModel, before: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{before}{name}.")
            continue
        entry = {"value": to_jsonable_python(value)}
        if not field.is_required():
            entry["default"] = to_jsonable_python(field.get_default(call_default_factory=True))
        if field.description:
            entry["note"] = field.description
        yield before + name, entry
