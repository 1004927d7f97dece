"""The list of recipes, and one of them key by key."""

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from typer.testing import CliRunner

from diptych.cli import app
from diptych.runtime.errors import RecipeError
from diptych.systems import RECIPES, STAGED, find_recipe, find_stages
from diptych.systems.catalogue import entries, row_to_json, rows, settings
from diptych.systems.ledger import read_paper
from tests.support import sixth


def test_all_recipes_are_listed_once_with_what_they_are() -> None:
    listed = entries()
    assert [entry.name for entry in listed] == sorted({*RECIPES, *STAGED})
    for entry in listed:
        assert len(entry.about.split()) >= 4, entry
        assert entry.about.endswith("."), entry


def test_a_part_of_a_name_and_a_pattern_choose() -> None:
    assert {entry.system for entry in entries("TDEN/small")} == {"tden"}
    assert {entry.name.split("/")[0] for entry in entries("*/small/nlvr")} == {e.system for e in entries()}
    (entry,) = entries("vl-bert/official/vcr")
    recipe = find_recipe("vl-bert/official/vcr")
    assert (entry.task, entry.steps, entry.batch) == ("vcr", recipe.training.steps, recipe.training.batch)


def test_stages_count_their_steps_together() -> None:
    (name,) = (name for name in STAGED if "small" in name)
    (entry,) = entries(name)
    assert entry.steps == sum(recipe.training.steps for recipe in find_stages(name).recipes) > 0


def test_what_names_no_recipe_is_refused_with_the_nearest_or_the_way_to_the_list() -> None:
    with pytest.raises(RecipeError, match="did you mean unified-vlp/small/caption"):
        entries("unified-vlp/smal/caption")
    with pytest.raises(RecipeError, match=r"no recipe has 'uniter' in its name; `diptych recipes` lists all$"):
        entries("uniter")


def test_the_keys_of_a_recipe_are_those_that_can_be_set() -> None:
    """Set to what is shown, every key leaves the recipe as it is."""
    name = "vl-bert/small/end-to-end"
    shown = settings(name)
    given = [f"{key}={json.dumps(told['value'])}" for key, told in shown.items() if key != "objectives.kind"]
    assert find_recipe(name, given) == find_recipe(name)
    assert (shown["optimizer.lr"]["value"], shown["optimizer.lr"]["default"]) == (2e-3, 1e-4)
    assert "default" not in shown["training.steps"]
    assert shown["optimizer.clip_each"]["default"] is None
    assert shown["data.max_words"]["note"] == "Maximum number of tokens of a text; longer texts are cut."


def test_keys_of_stages_begin_with_the_stage_s_number() -> None:
    name = "image-bert/small/pretrain/web-then-train"
    shown = settings(name)
    assert [shown[f"{stage}.data.split"]["value"] for stage in (1, 2)] == ["web", "train"]
    assert find_stages(name, ["2.data.split=val"]).recipes[1].data.split == "val"


def test_every_key_of_every_recipe_has_a_note() -> None:
    silent = {key: name for name in RECIPES for key, told in settings(name).items() if "note" not in told}
    assert not silent


def test_lists_are_of_one_system_and_one_task() -> None:
    found = entries(system="xgpt", task="vqa")
    assert [entry.name for entry in found] == ["xgpt/photos/vqa", "xgpt/small/vqa", "xgpt/vqa"]
    with pytest.raises(RecipeError, match=r"--system xgtp: unknown; did you mean xgpt\?"):
        entries(system="xgtp")
    with pytest.raises(RecipeError, match=r"--task captions: unknown; did you mean caption"):
        entries(task="captions")
    with pytest.raises(RecipeError, match=r"none of the recipes found \(1\) is for --system tden and --task vqa"):
        entries("xgpt/vqa", "tden", "vqa")


def test_a_recipe_is_listed_with_what_to_type_and_where_papers_report_it() -> None:
    (entry,) = (entry for entry in entries("tden/pretrain") if entry.name == "tden/pretrain/table-2-row-3")
    assert entry.command == (
        "diptych pretrain tden/pretrain/table-2-row-3 --data STORE --init FILE --vocab VOCAB --out OUT"
    )
    assert entry.tables == ("TDEN, Table 2",)
    assert entry.samples == entry.steps * entry.batch
    (first,) = (entry for entry in entries("unified-vlp/pretrain") if entry.name == "unified-vlp/pretrain")
    assert first.authors == "30 epochs of 5 h on 8 V100"
    assert "network_init" not in first.command
    (pixels,) = (entry for entry in entries("vl-bert/pretrain") if entry.name == "vl-bert/pretrain")
    assert " --vocab VOCAB --set network_init=FILE --out OUT" in pixels.command
    assert {"XGPT, Table 1", "Unified VLP, Table 2"} <= set(first.tables)


def test_commands_of_the_list_are_read_by_the_command_line() -> None:
    group = cast(Any, typer.main.get_command(app))
    for entry in entries():
        _, verb, *arguments = shlex.split(entry.command)
        group.get_command(None, verb).make_context(verb, arguments)


def test_rows_of_a_table() -> None:
    (row,) = (row for row in rows(2, system="xgpt") if row.row.name == "CC: IC + IDA")
    told = row_to_json(row)
    assert told["reported"] == {"COCO test": {"C": "118.1", "B@4": "36.4", "M": "28.3", "S": "21.3"}}
    assert told["recipes"] == ("xgpt/text", "xgpt/pretrain/table-2-row-3", "xgpt/caption")
    assert {row.paper.system for row in rows(2)} == {"unified-vlp", "vl-bert", "image-bert", "xgpt", "tden"}
    assert {row.paper.system for row in rows(2, task="vcr")} == {"vl-bert", "tden"}
    assert [row.row.name for row in rows(4, "triplet", "image-bert")] == ["4: Binary+CE+Triplet", "4: Triplet only"]
    with pytest.raises(RecipeError, match="--table 9: the papers have Tables 1 to 8"):
        rows(9)
    with pytest.raises(RecipeError, match="--table 3: the paper of tden has Tables 1 to 2"):
        rows(3, system="tden")
    with pytest.raises(RecipeError, match="no row of Table 3 matches"):
        rows(3, "nothing")


def test_the_command_shows_rows_with_numbers_and_commands() -> None:
    shown = CliRunner().invoke(app, ["recipes", "--table", "4", "--system", "xgpt"])
    assert shown.exit_code == 0
    text = " ".join(shown.stdout.split())
    assert "single [MASK] COCO test: C 118.1, B@4 36.4, M 28.3, S 21.3 diptych pretrain xgpt/text" in text
    assert "id: xgpt/table-4/single-mask" in text
    listed = CliRunner().invoke(app, ["recipes", "--table", "5", "--json"])
    rows = json.loads(listed.stdout)
    assert {row["system"] for row in rows} == {"unified-vlp", None}
    assert json.loads(CliRunner().invoke(app, ["recipes", "tden/vqa"]).stdout)["training.steps"]["value"] == 92_500


def test_a_system_without_tables_of_its_paper_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    sixth.add(monkeypatch)
    with pytest.raises(RecipeError, match=r"--table 2: Diptych has no tables of sixth's paper, only of"):
        rows(2, system="sixth")


def test_a_paper_that_names_what_is_not_there_is_refused(tmp_path: Path) -> None:
    table = '[tables.1]\nabout = ""\nrows = [["a", "1", "train"]]\n'
    (tmp_path / "paper.toml").write_text(f'cite = ""\n{table}')
    with pytest.raises(RecipeError, match=r"paper.toml: no word, part or command 'train'"):
        read_paper("sixth", tmp_path / "paper.toml")
    (tmp_path / "other.toml").write_text(f'cited = ""\n{table}')
    with pytest.raises(RecipeError, match=r"other.toml: cite: Field required"):
        read_paper("sixth", tmp_path / "other.toml")


def test_each_recipe_says_what_it_is_in_a_sentence_of_its_own() -> None:
    shared = Counter((entry.system, entry.about) for entry in entries())
    assert all(about.endswith(".") and ". " not in about for _, about in shared)
    assert {key for key, times in shared.items() if times > 1} <= {
        ("unified-vlp", "Diptych's own pre-training: a query for every word instead of masks on 15% (decision 0005).")
    }
