"""Stages of pre-training: what each begins from, what it reads, and how a stopped one goes on."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from diptych.core import FeatureContract, Record
from diptych.data.extract.own_data import named_data
from diptych.data.store.several import SeveralStores
from diptych.data.store.store import Store, StoreWriter, iterate
from diptych.runs.folder import open_model
from diptych.runs.run import run, run_in
from diptych.runs.run_folder import open_stages
from diptych.runs.stages import fit_stages, run_stages
from diptych.runs.start import Nothing, Trained
from diptych.runtime.errors import DataError, RecipeError, Stopped
from diptych.systems import RECIPES, STAGED, find_stages
from diptych.systems.stages import Stages
from diptych.training.ranks import Ranks
from tests.support import toy

STAGES = "image-bert/small/pretrain/web-then-train"
QUIET = Console(quiet=True)
TINY = ("model.width=16", "model.heads=2", "model.layers=1", "model.ffn=32", "training.steps=4", "training.batch=4",
        "training.validate_every=null", "training.checkpoint_every=2", "training.precision=fp32")  # fmt: skip
CONTRACT = FeatureContract("toy", "", feature_size=6, class_names=tuple("abcd"))


def store(folder: Path, *splits: str, contract: FeatureContract = CONTRACT) -> Store:
    with StoreWriter(folder, contract) as writer:
        for number, split in enumerate(splits):
            words = " ".join(str(int(word)) for word in toy.sample(number, 3).text)
            writer.add(Record(f"p{number}", split, captions=(words,), regions=toy.regions(3, number)))
    return Store(folder)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return open_model(folder).model.state_dict()


def test_a_stage_begins_from_the_one_before(tmp_path):
    """Two stages equal two runs, the second from the first's model; a second call repeats nothing."""
    data = store(tmp_path / "store", *["web"] * 8, *["train"] * 8)
    stages = find_stages(STAGES, (*TINY, "2.optimizer.lr=5e-4", "2.training.steps=2"))
    assert [recipe.data.split for recipe in stages.recipes] == ["web", "train"]
    assert [recipe.optimizer.lr for recipe in stages.recipes] == [2e-3, 5e-4]
    made = run_stages(open_stages(stages, tmp_path / "out"), data, Nothing(), QUIET)
    first = run(stages.recipes[0], data, tmp_path / "one", console=QUIET).model
    run(stages.recipes[1], data, tmp_path / "two", first, QUIET)
    by_hand, found = weights(tmp_path / "two"), weights(tmp_path / "out")
    assert made.folder == tmp_path / "out" / "model"
    assert all(torch.equal(found[name], value) for name, value in by_hand.items())
    assert any(not torch.equal(found[name], value) for name, value in weights(tmp_path / "out" / "stage-1").items())
    before = (tmp_path / "out" / "stage-1" / "metrics.jsonl").read_text()
    run_stages(open_stages(stages, tmp_path / "out"), data, Nothing(), QUIET)
    assert (tmp_path / "out" / "stage-1" / "metrics.jsonl").read_text() == before
    with pytest.raises(RecipeError, match=r"stage-2 holds a run of another recipe"):
        open_stages(find_stages(STAGES, TINY), tmp_path / "out")


def test_the_ranks_join_once_and_the_first_writes_the_model(tmp_path, monkeypatch):
    """A join a stage would let a rank begin the second while another saves the first."""
    data, seen = store(tmp_path / "store", *["web"] * 8, *["train"] * 8), []

    @contextmanager
    def join_as_second(device):
        seen.append("join")
        yield Ranks(1, 2, device)
        seen.append("leave")

    def run_and_note(folder, *rest):
        seen.append(folder.path.name)
        return run_in(folder, *rest)

    monkeypatch.setattr("diptych.runs.stages.join_ranks", join_as_second)
    monkeypatch.setattr("diptych.runs.stages.run_in", run_and_note)
    run_stages(open_stages(find_stages(STAGES, TINY), tmp_path / "out"), data, Nothing(), QUIET)
    assert seen == ["join", "stage-1", "stage-2", "leave"]
    assert not (tmp_path / "out" / "model").exists()


def test_a_stage_that_was_stopped_goes_on(tmp_path, monkeypatch):
    data = store(tmp_path / "store", *["web"] * 8, *["train"] * 8)
    stages = find_stages(STAGES, TINY)
    run_stages(open_stages(stages, tmp_path / "whole"), data, Nothing(), QUIET)

    def stop(folder, *rest):
        if folder.recipe.name.endswith("/2"):
            raise Stopped("asked to stop")
        return run_in(folder, *rest)

    monkeypatch.setattr("diptych.runs.stages.run_in", stop)
    with pytest.raises(Stopped):
        run_stages(open_stages(stages, tmp_path / "cut"), data, Nothing(), QUIET)
    assert not (tmp_path / "cut" / "model").exists()
    monkeypatch.undo()
    run_stages(open_stages(stages, tmp_path / "cut"), data, Nothing(), QUIET)
    whole = weights(tmp_path / "whole")
    assert all(torch.equal(whole[name], value) for name, value in weights(tmp_path / "cut").items())


def test_a_model_that_is_gone_on_with_keeps_its_sizes(tmp_path):
    data = store(tmp_path / "store", *["web"] * 8, *["train"] * 8)
    one = find_stages("image-bert/small/pretrain", TINY)
    start = run_stages(open_stages(one, tmp_path / "one"), data, Nothing(), QUIET)
    fitted, _ = fit_stages(find_stages(STAGES), Trained(start))
    assert {(recipe.model.width, recipe.model.layers) for recipe in fitted.recipes} == {(16, 1)}
    steps = [setting for setting in TINY if not setting.startswith("model.")]
    more = open_stages(fitted.override(steps), tmp_path / "more")
    assert run_stages(more, data, Trained(start), QUIET).architecture.config.width == 16
    with pytest.raises(RecipeError, match=r"xgpt/small/pretrain trains xgpt, .* is a model of image-bert"):
        fit_stages(find_stages("xgpt/small/pretrain"), Trained(start))


def test_settings_are_of_every_stage_or_of_one():
    stages = find_stages(
        STAGES, ("optimizer.lr=0.5", "1.training.steps=7", "init=bert.bin", "data.vocabulary=v.txt", "network_init=n")
    )
    assert [recipe.optimizer.lr for recipe in stages.recipes] == [0.5, 0.5]
    untouched = find_stages(STAGES).recipes[1].training.steps
    assert [recipe.training.steps for recipe in stages.recipes] == [7, untouched]
    assert [recipe.init for recipe in stages.recipes] == ["bert.bin", None], "later ones begin from the one before"
    assert [recipe.network_init for recipe in stages.recipes] == ["n", None]
    with pytest.raises(RecipeError, match="has stages 1 to 2"):
        find_stages(STAGES, ("3.optimizer.lr=0.5",))
    with pytest.raises(RecipeError, match="did you mean lr"):
        find_stages(STAGES, ("2.optimizer.lrr=0.5",))
    with pytest.raises(RecipeError, match="all stages need the same model"):
        find_stages(STAGES, ("2.model.layers=5",))
    with pytest.raises(RecipeError, match="has no stages"):
        Stages("none", ())
    with pytest.raises(RecipeError, match="did you mean image-bert/small/pretrain/web-then-train"):
        find_stages("image-bert/small/pretrain/web-then-trai")


def test_the_rows_of_table_3():
    """LAIT; CC; CC and SBU; all three at once; LAIT, then CC and SBU."""
    rows = {name: RECIPES[f"image-bert/pretrain/{name}"]() for name in ("lait", "cc", "cc+sbu", "lait+cc+sbu")}
    assert {name: recipe.data.split for name, recipe in rows.items()} == {name: name for name in rows}
    assert rows["cc+sbu"].training.steps == 17 * 4_000_000 // 48
    last = STAGED["image-bert/pretrain/lait-then-cc+sbu"]()
    assert [recipe.data.split for recipe in last.recipes] == ["lait", "cc+sbu"]
    assert [recipe.training.steps for recipe in last.recipes] == [17 * 2_000_000 // 48, 17 * 4_000_000 // 48]
    assert {(recipe.optimizer.lr, recipe.training.batch) for recipe in last.recipes} == {(1e-4, 48)}


@pytest.mark.parametrize("name", STAGED)
def test_every_staged_recipe_builds(name):
    stages = STAGED[name]()
    assert stages.name == name
    assert len(stages.recipes) == 2
    assert len({recipe.name for recipe in stages.recipes}) == 2


def test_several_splits_are_one_set(tmp_path):
    data = store(tmp_path, "cc", "sbu", "val", "sbu")
    assert data.split("cc+sbu") == [0, 1, 3]
    assert [record.key for record in iterate(data, "cc+sbu")] == ["p0", "p1", "p3"]


def test_several_stores_are_one(tmp_path):
    first, second = store(tmp_path / "a", "train", "val"), store(tmp_path / "b", "train", "train", "val")
    both = SeveralStores({"cc": first, "sbu": second})
    assert len(both) == 5
    assert both.splits == {"cc": 1, "val": 2, "sbu": 2}
    assert both.split("cc+sbu") == [0, 2, 3]
    assert both.keys() == {"cc/p0", "cc/p1", "sbu/p0", "sbu/p1", "sbu/p2"}, "equal keys stay apart"
    record = both.record(3)
    assert record.captions == second.record(1).captions
    assert torch.equal(record.regions.boxes, second.record(1).regions.boxes)
    assert both.region_counts([4, 0]).tolist() == [3, len(both.regions(0))]
    with pytest.raises(IndexError):
        both.words(5)
    other = store(tmp_path / "c", "train", contract=replace(CONTRACT, extractor="another"))
    with pytest.raises(DataError, match=r"the features of lait .* differ from those of cc .*extractor"):
        SeveralStores({"cc": first, "lait": other})


def test_stores_are_named_on_the_command_line(tmp_path):
    store(tmp_path / "a", "train"), store(tmp_path / "b", "train")
    named = (f"cc={tmp_path / 'a'}", f"sbu={tmp_path / 'b'}")
    opened = {name: Store(folder) for name, folder in named_data(named).items()}
    assert SeveralStores(opened).splits == {"cc": 1, "sbu": 1}
    assert named_data((str(tmp_path / "a"),)) == tmp_path / "a"
    for wrong in ((named[0], named[0]), (named[0], str(tmp_path / "b"))):
        with pytest.raises(RecipeError, match="need distinct names"):
            named_data(wrong)
