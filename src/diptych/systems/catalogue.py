"""The lists that `diptych recipes` prints: recipes, the keys of one recipe, and rows of the papers' tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from diptych.runtime.errors import RecipeError, nearest
from diptych.runtime.plugins import unknown_name
from diptych.systems import LISTED, RECIPES, STAGED, SYSTEMS, find_stages, ledger, papers
from diptych.systems.costs import Cost, cost_of
from diptych.systems.preset import Preset, StagedPreset
from diptych.systems.recipe import OF_STORE
from diptych.tasks import TASKS


@dataclass(frozen=True)
class CatalogueEntry:
    """A recipe, as one line of the list."""

    name: str
    system: str
    task: str
    about: str  # one sentence that describes the recipe
    steps: int  # number of optimizer steps of all stages
    epochs: float | None  # number of epochs; None: the recipe gives its length in steps
    batch: int
    samples: int  # number of samples that all steps read; a sample that is read twice counts twice
    authors: str  # what the authors' run cost; empty if their paper does not report it
    tables: tuple[str, ...]  # tables of papers in which the recipe reproduces a row
    command: str  # commands that run the recipe


def entries(pattern: str = "", system: str | None = None, task: str | None = None) -> list[CatalogueEntry]:
    """Return the recipes whose name contains `pattern`, or matches `pattern` if that has `*`, `?` or `[]`.

    `system`, `task`: return only recipes for this system and task. Raises RecipeError if no recipe is found.
    """
    known: dict[str, Preset | StagedPreset] = {**RECIPES, **STAGED}
    _check(system, task)
    names = [name for name in known if _fits(name, pattern)]
    if not names:
        raise unknown_name(f"no recipe has {pattern!r} in its name; {nearest(pattern, known, LISTED)}")
    listed = (_entry(name, known[name]) for name in sorted(names))
    chosen = [entry for entry in listed if system in (None, entry.system) and task in (None, entry.task)]
    if not chosen:
        options = {"--system": system, "--task": task}
        wanted = " and ".join(f"{option} {value}" for option, value in options.items() if value is not None)
        raise RecipeError(f"none of the recipes found ({len(names)}) is for {wanted}; {LISTED}")
    return chosen


def find_row(name: str) -> tuple[ledger.LedgerRow, str] | None:
    """Return the row of a paper's table of this id, and what follows it: how the id of a part begins, or "".

    None if `name` does not have the form SYSTEM/TABLE/ROW or SYSTEM/TABLE/ROW/PART. Raises RecipeError if no row has
    this id.
    """
    if (match := re.fullmatch(r"([^/]+/(?:table-\d+|figure-\d+|text)/[^/]+)/?([^/]*)", name)) is None:
        return None
    known = {entry.id: entry for entry in ledger.ledger_rows(papers())}
    if match[1] not in known:
        raise unknown_name(f"no row {match[1]!r}; {nearest(match[1], known, '`diptych recipes --table 1` lists some')}")
    return known[match[1]], match[2]


def rows(table: int, pattern: str = "", system: str | None = None, task: str | None = None) -> list[ledger.LedgerRow]:
    """Return the rows of Table N of all papers; `table` is N.

    `system`: only rows of this system's paper. `task`: only tables with scores of this task. `pattern`: only rows
    reproduced by a recipe with a matching name. Raises RecipeError if there are no such rows.
    """
    _check(system, task)
    of_system = tuple(paper for paper in papers() if system in (None, paper.system))
    if not of_system:
        kept = ", ".join(paper.system for paper in papers())
        raise RecipeError(f"--table {table}: Diptych has no tables of {system}'s paper, only of {kept}")
    numbers = {number for paper in of_system for number in paper.written}
    if table not in numbers:
        whose = "the papers have" if system is None else f"the paper of {system} has"
        raise RecipeError(f"--table {table}: {whose} Tables 1 to {max(numbers)}")
    chosen = [
        entry
        for entry in ledger.ledger_rows(of_system)
        if entry.table.number == table
        and (task is None or task in {part.task for part in entry.table.parts})
        and (not pattern or any(_fits(recipe, pattern) for recipe in entry.row.recipes))
    ]
    if not chosen:
        raise RecipeError(f"no row of Table {table} matches; `diptych recipes --table {table}` lists all")
    return chosen


def made(name: str) -> list[ledger.LedgerRow]:
    """Return the rows of papers' tables that a recipe reproduces, alone or together with other recipes."""
    return [entry for entry in ledger.ledger_rows(papers()) if name in entry.row.recipes]


def row_to_json(entry: ledger.LedgerRow) -> dict[str, Any]:
    """Return a row as a dict for JSON: its paper, table, numbers, recipes and commands."""
    row = entry.row
    place = {"id": entry.id, "paper": entry.paper.cite, "table": entry.table.number, "row": row.name}
    made_by = {"recipes": row.recipes, "commands": row.commands, "note": row.note}
    place["cost"] = str(row_cost(entry)) if row.recipes else None
    return place | {"system": row.system, "reported": entry.reported} | made_by


def row_cost(entry: ledger.LedgerRow) -> Cost:
    """Return the cost of all training of a row that has recipes."""
    trained = ((name, re.findall(r"(?<=--set )training\.steps=\S+", line)) for name, line in entry.row.trained)
    return cost_of(recipe for name, given in trained for recipe in find_stages(name, given).recipes)


def settings(name: str) -> dict[str, dict[str, Any]]:
    """Return {key: {"value": ..., "default": ..., "note": ...}} for all keys of a recipe, written as for `--set
    KEY=VALUE`.

    In a recipe of several stages, a key begins with the stage's number. `note` is the field's meaning. Required fields
    have no `default`.
    """
    recipes = find_stages(name).recipes
    if len(recipes) == 1:
        return dict(_settings(recipes[0], ""))
    return {key: entry for n, recipe in enumerate(recipes, start=1) for key, entry in _settings(recipe, f"{n}.")}


def command_of(name: str) -> str:
    """Return the command that runs a recipe. The user must replace the names in capitals, such as STORE."""
    first = find_stages(name).recipes[0]
    start = " --model MODEL" if first.wants_model else " --init FILE --vocab VOCAB" if "init" in first.wanted else ""
    start += " --set network_init=FILE" * (first.wanted.get("network_init", OF_STORE) != OF_STORE)
    if TASKS[first.task].pretrains:
        return f"diptych pretrain {name} --data STORE{start} --out OUT"
    return f"diptych finetune {first.task} --recipe {name} --data STORE --model MODEL --out OUT"


def _entry(name: str, preset: Preset | StagedPreset) -> CatalogueEntry:
    recipes = find_stages(name).recipes
    first = recipes[0]
    authors = next((paper.costs[name] for paper in papers() if name in paper.costs), "")
    titles = (f"{SYSTEMS[row.paper.system].title}, {row.table.title}" for row in made(name))
    tables = tuple(dict.fromkeys(titles))
    steps = sum(recipe.training.steps for recipe in recipes)
    samples = sum(recipe.training.steps * recipe.training.batch for recipe in recipes)
    about, batch, command = preset.about, first.training.batch, command_of(name)
    length = first.training.epochs
    return CatalogueEntry(
        name, first.system, first.task, about, steps, length, batch, samples, authors, tables, command
    )


def _check(system: str | None, task: str | None) -> None:
    if system not in (None, *SYSTEMS):
        raise unknown_name(f"--system {system}: unknown; {nearest(str(system), SYSTEMS)}")
    if task not in (None, *TASKS):
        raise unknown_name(f"--task {task}: unknown; {nearest(str(task), TASKS)}")


def _fits(name: str, pattern: str) -> bool:
    return pattern.lower() in name or fnmatchcase(name, pattern.lower())


def _settings(config: BaseModel, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (dotted key, its value, default and note) for all keys of a section and of its inner sections."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{prefix}{name}.")
            continue
        entry = {"value": to_jsonable_python(value)}
        if not field.is_required():
            entry["default"] = to_jsonable_python(field.get_default(call_default_factory=True))
        if field.description:
            entry["note"] = field.description
        yield prefix + name, entry
