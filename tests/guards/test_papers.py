"""The ledger has every row of the papers' tables, and what it tells people to type builds.

`tests/data/papers.json` was cut from the papers' texts by machine, apart from the ledger, which was typed by hand.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from diptych.cli import app
from diptych.runs.run import fit_named
from diptych.systems import RECIPES, STAGED, SYSTEMS, Recipe, find_recipe, find_stages, papers
from diptych.systems.ledger import NOT_REPORTED, LedgerRow, Paper, entries, numbers
from diptych.tasks import TASKS

PRINTED: dict[str, dict[str, list[list[str]]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "papers.json").read_text("utf-8")
)
TABLES = {"unified-vlp": 8, "vl-bert": 4, "image-bert": 4, "xgpt": 7, "tden": 2}
# Every row of these is the paper's own system, whatever it is called.
OWN = {"unified-vlp": (4, 5, 6, 7, 8), "image-bert": (3, 4), "xgpt": (2, 3, 4), "tden": (2,)}
OURS = re.compile(r"Unified VLP|VL-BERT|ImageBERT|XGPT|TDEN|w/o VLP|pre-training only")
ROWS = tuple(entries(papers()))
VERBS = cast(Any, typer.main.get_command(app)).commands


def test_ids_are_one_row_s_each() -> None:
    ids = [entry.id for entry in ROWS]
    assert len(set(ids)) == len(ids)


def test_a_folder_is_one_run_s_whichever_rows_share_it() -> None:
    made: dict[str, str] = {}
    for command in (command for entry in ROWS for command in entry.row.commands):
        if out := re.search(r"--out (\S+)", command):
            assert made.setdefault(out[1], command) == command


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.system)
def test_every_table_is_there_with_every_row_and_number(paper: Paper) -> None:
    assert [table.number for table in paper.tables] == list(range(1, TABLES[paper.system] + 1))
    counted = {str(table.number): table for table in paper.tables if table.parts}
    assert counted.keys() == PRINTED[paper.system].keys()
    for number, table in counted.items():
        printed = [
            numbers(cells) if number != "8" else tuple(cells.split(" | ")) for _, cells in PRINTED[paper.system][number]
        ]
        assert [row.numbers for row in table.rows] == printed, f"Table {number}"
        assert all(len(cells) == len(table.columns) for cells in printed), f"Table {number}"


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.system)
def test_every_row_of_the_five_systems_says_what_to_type(paper: Paper) -> None:
    for table in paper.tables:
        for row, (printed, _) in zip(table.rows, PRINTED[paper.system].get(str(table.number), ()), strict=False):
            ours = table.number in OWN.get(paper.system, ()) or OURS.search(printed)
            assert bool(ours) == (row.system is not None), f"Table {table.number}, {printed}"
            assert row.commands or not ours, f"Table {table.number}, {printed}"
            assert row.system is None or row.system in SYSTEMS


def test_costs_are_of_recipes_that_exist() -> None:
    for paper in papers():
        assert set(paper.costs) <= {*RECIPES, *STAGED}


def test_table_8_of_unified_vlp_is_what_its_recipes_have() -> None:
    (table,) = (table for table in papers()[0].tables if table.number == 8)
    for row in table.rows:
        recipe = find_recipe(row.recipes[-1])
        assert (recipe.training.batch, recipe.optimizer.lr) == (int(row.numbers[0]), float(row.numbers[1])), row.name


@dataclass
class Typed:
    """A row's commands as the command line reads them; what each folder holds after them."""

    made: dict[str, Recipe] = field(default_factory=dict)
    scored: set[str] = field(default_factory=set)

    def run(self, command: str) -> None:
        program, verb, *arguments = shlex.split(command)
        assert program == "diptych"
        given = VERBS[verb].make_context(verb, arguments).params
        getattr(self, verb)(**given)

    def pretrain(self, recipe: str, data: list[str], out: Path, model: str | None, **given: Any) -> None:
        stages = find_stages(recipe)
        named = {one.partition("=")[0] for one in data if "=" in one}
        for one in stages.recipes:
            assert set(one.data.split.split("+")) <= (named or {"train"}), f"{recipe} reads {one.data.split}"
        first = self._begun(stages.recipes[0], model)
        options = [f"init={given['init']}"] if given["init"] else []
        first = first.override([*options, *(given["settings"] or [])])
        first.check_begun()
        self.made[str(out)] = first if len(stages.recipes) == 1 else stages.recipes[-1]

    def finetune(self, task: str, recipe: str, model: str, out: Path, **given: Any) -> None:
        chosen = find_recipe(recipe)
        assert chosen.task == task
        chosen = self._begun(chosen, None if model == "none" else model).override(given["settings"] or [])
        chosen.check_begun()
        self.made[str(out)] = chosen

    def evaluate(self, model: str, task: str | None, **given: Any) -> None:
        scored = task or self.made[model].task
        assert given["submit"] in (None, {"caption": "coco"}.get(scored, scored)), model
        self.scored.add(scored)

    def augment(self, model: Path, **given: Any) -> None:
        assert self.made[str(model)].task == "caption"

    def _begun(self, recipe: Recipe, model: str | None) -> Recipe:
        if model is None:
            return recipe
        before = self.made[model]
        architecture = SimpleNamespace(system=before.system, config=before.model)
        start: Any = SimpleNamespace(folder=Path(model), architecture=architecture, recipe=before)
        return fit_named(recipe, start)[0]


def filled(entry: LedgerRow) -> Iterator[str]:
    """Tasks of which the paper reports a number in this row."""
    for (part, _), number in zip(entry.table.columns, entry.row.numbers, strict=True):
        if number != NOT_REPORTED and part.task is not None:
            yield part.task


@pytest.mark.parametrize("entry", [e for e in ROWS if e.row.commands], ids=lambda entry: entry.id)
def test_what_a_row_says_to_type_builds_and_scores_what_the_paper_does(entry: LedgerRow) -> None:
    typed = Typed()
    for command in entry.row.commands:
        typed.run(command)
    assert set(filled(entry)) <= typed.scored <= TASKS.keys()
