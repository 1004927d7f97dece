"""What recipes there are, and what each is made of; what rows of the papers they make: for `diptych recipes`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from diptych.runtime.errors import RecipeError, nearest
from diptych.systems import LISTED, RECIPES, STAGED, SYSTEMS, find_stages, ledger, papers
from diptych.systems.preset import Preset, StagedPreset
from diptych.tasks import TASKS


@dataclass(frozen=True)
class CatalogueEntry:
    """A recipe in one line of the list."""

    name: str
    system: str
    task: str
    about: str  # what it is, in a sentence
    steps: int  # of all its stages together
    batch: int
    samples: int  # that it reads, those it reads again too
    authors: str  # what the authors' run took, where their paper says it
    tables: tuple[str, ...]  # of the papers, in which a row is made by it
    command: str  # what to type


def entries(pattern: str = "", system: str | None = None, task: str | None = None) -> list[CatalogueEntry]:
    """All whose name holds `pattern`, or fits it where it has `*`, `?` or `[]`, of a system, for a task.

    Raises RecipeError where there is none.
    """
    known: dict[str, Preset | StagedPreset] = {**RECIPES, **STAGED}
    _known("--system", system, SYSTEMS)
    _known("--task", task, TASKS)
    names = [name for name in known if _fits(name, pattern)]
    if not names:
        raise RecipeError(f"no recipe has {pattern!r} in its name; {nearest(pattern, known, LISTED)}")
    found = (_entry(name, known[name]) for name in sorted(names))
    chosen = [entry for entry in found if system in (None, entry.system) and task in (None, entry.task)]
    if not chosen:
        wanted = " and ".join(
            f"{option} {value}" for option, value in (("--system", system), ("--task", task)) if value is not None
        )
        raise RecipeError(f"none of {len(names)} recipes is of {wanted}; {LISTED}")
    return chosen


def rows(table: int, pattern: str = "", system: str | None = None, task: str | None = None) -> list[ledger.LedgerRow]:
    """The rows of the papers' tables of this number: of a system's paper, with a score of a task, and made by a recipe
    that `pattern` fits. Raises RecipeError where there is none."""
    _known("--system", system, SYSTEMS)
    _known("--task", task, TASKS)
    of_system = [paper for paper in papers() if system in (None, paper.system)]
    if not of_system:
        kept = ", ".join(paper.system for paper in papers())
        raise RecipeError(f"--table {table}: no tables of the paper of {system} are kept, but those of {kept}")
    numbers = sorted({one.number for paper in of_system for one in paper.tables})
    if table not in numbers:
        whose = "the papers have" if system is None else f"the paper of {system} has"
        raise RecipeError(f"--table {table}: {whose} Tables 1 to {numbers[-1]}")
    found = [
        entry
        for entry in ledger.entries(tuple(of_system))
        if entry.table.number == table
        and (task is None or task in {part.task for part in entry.table.parts})
        and (not pattern or any(_fits(recipe, pattern) for recipe in entry.row.recipes))
    ]
    if not found:
        raise RecipeError(f"no row of Table {table} fits; `diptych recipes --table {table}` lists all")
    return found


def made(name: str) -> list[ledger.LedgerRow]:
    """The rows that a recipe makes, or has a part in."""
    return [entry for entry in ledger.entries(papers()) if name in entry.row.recipes]


def row_to_json(entry: ledger.LedgerRow) -> dict[str, Any]:
    """A row with all that is known of it."""
    return {
        "id": entry.id,
        "paper": entry.paper.cite,
        "table": entry.table.number,
        "row": entry.row.name,
        "system": entry.row.system,
        "reported": entry.reported,
        "recipes": entry.row.recipes,
        "commands": entry.row.commands,
        "note": entry.row.note,
    }


def settings(name: str) -> dict[str, dict[str, Any]]:
    """All keys of one recipe, as `--set` takes them: of one in stages they begin with the stage's number.

    Each with its `value`, the `default` of the field where it has one, and a `note` where its meaning is written down.
    """
    recipes = find_stages(name).recipes
    if len(recipes) == 1:
        return dict(_settings(recipes[0], ""))
    return {key: entry for n, recipe in enumerate(recipes, start=1) for key, entry in _settings(recipe, f"{n}.")}


def command_of(name: str) -> str:
    """What to type for one recipe alone; names in capitals are the user's."""
    first = find_stages(name).recipes[0]
    start = " --model MODEL" if first.wants_model else " --init FILE --vocab VOCAB" if first.wants_init else ""
    if TASKS[first.task].pretrains:
        return f"diptych pretrain {name} --data STORE{start} --out OUT"
    return f"diptych finetune {first.task} --recipe {name} --data STORE --model MODEL --out OUT"


def _entry(name: str, maker: Preset | StagedPreset) -> CatalogueEntry:
    recipes = find_stages(name).recipes
    first = recipes[0]
    authors = next((paper.costs[name] for paper in papers() if name in paper.costs), "")
    tables = (f"{SYSTEMS[row.paper.system].title}, Table {row.table.number}" for row in made(name))
    return CatalogueEntry(
        name,
        first.system,
        first.task,
        maker.about,
        sum(recipe.training.steps for recipe in recipes),
        first.training.batch,
        sum(recipe.training.steps * recipe.training.batch for recipe in recipes),
        authors,
        tuple(dict.fromkeys(tables)),
        command_of(name),
    )


def _known(option: str, name: str | None, known: Iterable[str]) -> None:
    if name is not None and name not in known:
        raise RecipeError(f"{option} {name}: unknown; {nearest(name, known)}")


def _fits(name: str, pattern: str) -> bool:
    return pattern.lower() in name or fnmatchcase(name, pattern.lower())


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
