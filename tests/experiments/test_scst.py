"""The comparison of self-critical training, at a tiny size: its arms, its figures, and that it goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from diptych.runs.run import run
from diptych.runtime.errors import DataError
from diptych.systems import find_recipe
from diptych_world.book import record
from diptych_world.layout import scene
from experiments.scst import ARMS, LONGER, REWARDED, ROW, TAUGHT, Study, about_captions, run_arm, study
from tests.support.scenes import TINY, scene_store

FEW = (
    "training.batch=4", "training.threads=1", "training.precision=fp32", "training.validate_every=2",
    "data.validation_records=2", "decoding.max_words=6", "training.log_every=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    store = scene_store(folder / "store", {"train": 6, "val": 2, "test": 3})
    recipe = find_recipe("unified-vlp/small/pretrain", [*TINY, *FEW, "data.split=train", "training.steps=2"])
    run(recipe, store, folder / "pretrain", console=Console(quiet=True))
    return Study(
        model=str(folder / "pretrain"), store=str(folder / "store"), out=str(folder / "out"), seeds=1, taught_steps=2,
        steps=2, settings=FEW,
    )  # fmt: skip


def test_three_arms_and_what_they_say(plan: Study) -> None:
    for arm in ARMS:
        row = run_arm(plan, arm, 0)
        assert json.loads((plan.folder(arm, 0) / ROW).read_text()) == row
        assert 0 <= row["objects named that are not there"] <= 100
        assert row["words a caption"] <= 6
    lines = (plan.folder(REWARDED, 0) / "metrics.jsonl").read_text().splitlines()
    assert "reward" in json.loads(lines[0])["losses"]
    seen: list[object] = []
    told = study(plan, 1, seen.append)
    assert not seen, "what has a row is not run again"
    assert set(told) == {*ARMS, f"gain of {LONGER}", f"gain of {REWARDED}", "rounds"}
    rows = {row["arm"]: row for row in told["rounds"]}
    gain = rows[REWARDED]["CIDEr"] - rows[TAUGHT]["CIDEr"]
    of_all = dict.fromkeys(("value", "low", "high"), round(gain, 1))
    assert told[f"gain of {REWARDED}"]["CIDEr"] == of_all | {"seeds": 1}


def test_what_scores_do_not_tell() -> None:
    one, two = (record(scene(0, "test", index)) for index in range(2))
    there = sorted({thing.kind for thing in one.objects})
    absent = next(kind for kind in ("dog", "boat", "kite", "lamp", "tent") if kind not in there)
    told = about_captions({one.key: f"a {there[0]} and a {absent}", two.key: "a a a a a"}, [one, two])
    assert told["objects named that are not there"] == 50
    assert told["captions with such an object"] == 50
    assert told["words a caption"] == 5
    assert told["repeated bigrams"] == pytest.approx(100 * 3 / 8)
    with pytest.raises(DataError, match="no record lists the objects of its picture"):
        about_captions({one.key: "a dog"}, [replace(one, objects=())])
