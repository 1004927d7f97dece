"""The study of Flickr8k at a tiny size: what it divides, arms that differ in their start alone, and its figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.runtime.errors import RecipeError
from experiments import flickr8k
from experiments.claims.arms import Arm, Place, recipe_of
from experiments.flickr8k import ARMS, PRETRAINED, SCRATCH, Photographs
from tests.support.scenes import scene_store

SPLITS = {"train": 6, "val": 2, "test": 3}
TINY = (
    "model.width=16", "model.heads=2", "training.precision=fp32", "training.batch=2", "training.steps=2",
    "training.checkpoint_every=2", "decoding.max_words=4",
)  # fmt: skip
LOOK = ("training.validate_every=2",)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Photographs:
    scene_store(tmp_path / "store", SPLITS, detector=True)
    monkeypatch.setattr(flickr8k, "LABELLED", 2)
    return Photographs(str(tmp_path / "store"), str(tmp_path / "out"))


def test_what_teaches_nothing_is_read_before(plan: Photographs) -> None:
    divided = plan.divided()
    counts = {split: len(divided.split(split)) for split in ("web", "train", "val", "test")}
    assert counts == {"web": 4, "train": 2, "val": 2, "test": 3}
    keys = {split: [divided.record(index).key for index in divided.split(split)] for split in ("web", "train")}
    assert max(map(flickr8k.place_of, keys["web"])) < min(map(flickr8k.place_of, keys["train"]))
    assert divided.detector is not None, "models find the regions of new photographs with it"
    with pytest.raises(RecipeError, match=r"holds another study \(store: other"):
        replace(plan, store="other").divided()


def test_the_arms_differ_in_their_start_alone() -> None:
    place = Place((("detected", ""),), "")
    first, other = (ARMS[name].last for name in (PRETRAINED, SCRATCH))
    assert recipe_of(first, 1, place) == recipe_of(other, 1, place)
    assert other.after is None
    assert first.after is not None
    before = recipe_of(first.after, 1, place)
    assert (before.data.split, before.training.steps, before.model.dropout) == ("web", 2000, 0.1)


def test_each_arm_is_scored_on_test(
    plan: Photographs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tiny(arm: Arm) -> Arm:
        start = arm.last.after
        before = None if start is None else replace(start, small=(*start.small, *TINY))
        return replace(arm, last=replace(arm.last, after=before, small=(*arm.last.small, *TINY, *LOOK)))

    monkeypatch.setattr(flickr8k, "ARMS", {name: tiny(arm) for name, arm in ARMS.items()})
    argv = ["flickr8k", "--store", plan.store, "--out", plan.out, "--seeds", "1", "--processes", "1"]
    monkeypatch.setattr("sys.argv", argv)
    flickr8k.main()
    told = json.loads(capsys.readouterr().out.partition("{")[2].join(("{", "")))
    assert [(row["arm"], row["seed"]) for row in told["rounds"]] == [(PRETRAINED, 0), (SCRATCH, 0)]
    for name in ARMS:
        assert told[name]["CIDEr"]["seeds"] == 1
        assert {"blind", "ceiling"} <= set(told[name]["CIDEr"])
