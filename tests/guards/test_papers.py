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
from diptych.runs.start import fit_named
from diptych.systems import RECIPES, STAGED, SYSTEMS, Recipe, find_recipe, find_stages, papers
from diptych.systems.ledger import NOT_REPORTED, LedgerRow, Paper, ledger_rows, numbers
from diptych.tasks import TASKS

PRINTED: dict[str, dict[str, list[list[str]]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "papers.json").read_text("utf-8")
)
TABLES = {"unified-vlp": 8, "vl-bert": 4, "image-bert": 4, "xgpt": 7, "tden": 2}
# Every row of these is the paper's own system, whatever it is called.
OWN = {"unified-vlp": (4, 5, 6, 7, 8), "image-bert": (3, 4), "xgpt": (2, 3, 4), "tden": (2,)}
OURS = re.compile(r"Unified VLP|VL-BERT|ImageBERT|XGPT|TDEN|w/o VLP|pre-training only")
ROWS = tuple(ledger_rows(papers()))
GROUP = cast(Any, typer.main.get_command(app))


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


def test_the_regions_of_every_store_are_those_of_the_paper_whose_recipe_reads_it() -> None:
    of = {paper.system: paper.stores for paper in papers()}
    unread = {(system, store) for system, stores in of.items() for store in stores}
    for command in (command for entry in ROWS for command in entry.row.commands):
        recipe = re.search(r"--recipe (\S+)|^diptych pretrain (\S+)", command)
        for name in re.findall(r"--data (?:\w+=)?(\S+)", command) if recipe else ():
            system = find_stages(recipe[1] or recipe[2]).recipes[0].system
            regions = name.removesuffix("-MORE").rpartition("-")[2]
            assert regions in of[system], command
            unread.discard((system, regions))
    assert not unread


# "Greedy search on the validation set and beam search with beam size 5 [XGPT: 2] on the test set"; TDEN does not say.
BEAMS = {("unified-vlp", "val"): 1, ("unified-vlp", "test"): 5, ("xgpt", "test"): 2, ("tden", "test"): 2}


def test_captions_are_decoded_as_the_paper_does_on_that_split() -> None:
    seen = set()
    for entry in ROWS:
        typed = Typed()
        for command in entry.row.commands:
            typed.run(command)
        for system, split, beams in typed.decoded:
            assert beams == BEAMS[system, split], entry.id
            seen.add((system, split))
    assert seen == BEAMS.keys()


def test_scores_after_epoch_20_are_of_a_schedule_of_30() -> None:
    rows = [entry for entry in ROWS if entry.paper.system == "unified-vlp" and entry.table.number in (5, 6)]
    for entry in rows:
        typed = Typed()
        for command in entry.row.commands:
            typed.run(command)
        (recipe,) = typed.made.values()
        assert recipe.training.steps * 3 == pytest.approx(recipe.optimizer.schedule_steps * 2, rel=0.01), entry.id
        assert recipe.optimizer.schedule_steps == find_recipe(recipe.name).training.steps
    assert len(rows) == 5


def test_figure_1_draws_four_starts_of_three_tasks_validated_in_each_epoch() -> None:
    (entry,) = (entry for entry in ROWS if entry.table.title == "Figure 1")
    typed = Typed()
    for command in entry.row.commands:
        typed.run(command)
    assert len(typed.drawn) == 12
    for run in typed.drawn:
        recipe = typed.made[str(run)]
        assert (recipe.training.validate_every, recipe.data.split) == ("1epoch", "train"), run
        assert recipe.task == "vqa" or recipe.decoding.beams == 1, run


def test_numbers_beside_the_tables_are_the_papers() -> None:
    """Unified VLP: "with full seq2seq training, CIDEr could climb to 77.2 after training for 30 epochs"."""
    found = {entry.row.name: entry.reported for entry in ROWS if entry.table.title == "Text"}
    assert found.pop("lambda 1, 30 epochs") == {"Conceptual Captions val": {"C": "77.2"}}
    assert found == {f"lambda {share}": {} for share in (0.25, 0.5, 0.75)}


def test_only_row_4_of_tden_ranks_by_the_cross_modal_encoder() -> None:
    ranked = {}
    for entry in ROWS:
        if entry.paper.system == "tden" and entry.table.number == 2:
            typed = Typed()
            for command in entry.row.commands:
                typed.run(command)
            (recipe,) = (recipe for recipe in typed.made.values() if recipe.task == "retrieval")
            ranked[entry.row.name[0]] = recipe.objectives.reads_pairs
    assert ranked == {str(row): row == 4 for row in range(1, 9)}


def test_written_captions_are_learnt_by_a_model_of_people_s() -> None:
    """XGPT, 6.1: "we continue to fine-tune" the model of Table 5's first row; both rows are another system's."""
    people, written = (e.row for e in ROWS if e.paper.system == "xgpt" and e.table.number == 5)
    assert people.system is written.system is None
    assert {*people.commands} < {*written.commands}
    assert "--data FLICKR30K-TOP100-MORE --model runs/image-bert-retrieval " in written.commands[-2]


@dataclass
class Typed:
    """A row's commands as the command line reads them; what each folder holds after them."""

    made: dict[str, Recipe] = field(default_factory=dict)
    scored: set[str] = field(default_factory=set)
    drawn: set[Path] = field(default_factory=set)
    decoded: set[tuple[str, str, int]] = field(default_factory=set)  # system, split, beams of captions

    def run(self, command: str) -> None:
        program, verb, *arguments = shlex.split(command)
        assert program == "diptych"
        given = GROUP.get_command(None, verb).make_context(verb, arguments).params
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

    def finetune(self, task: str, recipe: str, model: str | None, out: Path, **given: Any) -> None:
        chosen = find_recipe(recipe)
        assert chosen.task == task
        chosen = self._begun(chosen, model).override(given["settings"] or [])
        chosen.check_begun()
        self.made[str(out)] = chosen

    def evaluate(self, model: str, task: str | None, **given: Any) -> None:
        scored = task or self.made[model].task
        self.scored.add(scored)
        if scored == "caption":
            recipe = self.made[model]
            self.decoded.add((recipe.system, given["split"], given["beams"] or recipe.decoding.beams))

    def submit(self, model: str, format: str, **given: Any) -> None:
        task = self.made[model].task
        assert format == {"caption": "coco"}.get(task, task), model
        self.evaluate(model, task, **given)

    def rank(self, model: str, task: str, **given: Any) -> None:
        assert model in self.made
        self.scored.add(task)

    def augment(self, model: Path, **given: Any) -> None:
        assert self.made[str(model)].task == "caption"

    def plot(self, runs: list[Path], **given: Any) -> None:
        assert {str(run) for run in runs} <= self.made.keys()
        self.drawn.update(runs)

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
