"""A model on features that were found elsewhere: every verb that asks for them takes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diptych.data.store.store import Store
from tests.journeys.conftest import Result, drawn_pictures, tiny
from tests.support.given_features import given

COUNT = 20
SIZES = {"model.max_regions": 8, "model.positions": 40, "data.max_words": 16, "training.steps": 2}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    drawn_pictures(tmp_path, COUNT)
    (tmp_path / "features").mkdir()
    for number in range(COUNT):
        given(tmp_path / "features" / f"{number:03d}.npz", seed=number)
    return tmp_path


def test_features_take_the_place_of_a_detector(own: Path, run: Callable[..., Result]) -> None:
    def done(*command: object) -> Result:
        ended = run(*command)
        assert ended.code == 0, (command, ended.error)
        return ended

    pretrain = ("pretrain", "image-bert/small/pretrain", "--data", "mine.jsonl", "--out", "first",
                *tiny(**SIZES, **{"data.split": "train"}))  # fmt: skip
    bare = run(*pretrain)
    assert (bare.code, "pass features that you have (--features PATH)" in bare.error) == (2, True)
    done(*pretrain, "--features", "features")
    assert Store(own / "first/store").contract.extractor == "given"
    again = run(*pretrain[:3], "first/store", *pretrain[4:], "--features", "features")
    assert (again.code, "is a store, which already has regions" in again.error) == (2, True)
    settings = ("--set", "training.steps=2", "--set", "data.max_words=16", "--set", "training.validate_every=null",
                "--set", "training.average_best=1")  # fmt: skip
    tuned = ("finetune", "retrieval", "--data", "mine.jsonl", "--model", "first", "--out", "finder", *settings)
    asked = run(*tuned)
    assert (asked.code, "pass them: --features PATH" in asked.error) == (1, True)
    done(*tuned, "--features", "features")
    scored = done("evaluate", "--model", "finder", "--data", "mine.jsonl", "--features", "features", "--json")
    assert "R@1" in scored.out

    search = ("search", "a red dog", "--images", "photos", "--model", "finder")
    asked = run(*search)
    assert (asked.code, "--features PATH" in asked.error) == (1, True)
    assert len(done(*search, "--features", "features", "--top-k", COUNT).out.splitlines()) == COUNT
    (own / "features" / "003.npz").unlink()
    fewer = done(*search, "--features", "features", "--top-k", COUNT, "--cache", "anew")
    assert len(fewer.out.splitlines()) == COUNT - 1
    assert "003.jpg: found no features of" in fewer.error


def test_features_are_found_by_the_path_of_a_picture(own: Path, run: Callable[..., Result]) -> None:
    """Two folders with pictures of one name each have their own."""
    for folder in ("a", "b"):
        (own / "both" / folder).mkdir(parents=True)
        shutil.copy(own / "photos/000.jpg", own / "both" / folder / "one.jpg")
        (own / "kept" / folder).mkdir(parents=True)
        given(own / "kept" / folder / "one.npz", seed=ord(folder))
    from diptych.core import Record
    from diptych.vision.detectors.given import GivenRegions

    records = [Record(key=f"{n}", image=own / "both" / folder / "one.jpg") for n, folder in enumerate("ab")]
    first, second = (regions.features for regions in GivenRegions.of(own / "kept", records).detect([], records))
    assert first is not None
    assert second is not None
    drawn = np.random.default_rng(ord("a")).random((5, 12), np.float32)
    assert np.array_equal(first.numpy(), drawn[::-1]), "the best region comes first"
    assert not first.equal(second)


def test_a_detector_and_features_exclude_each_other(own: Path, with_detector: Path, run: Callable[..., Result]) -> None:
    ended = run("finetune", "caption", "--data", "mine.jsonl", "--model", with_detector, "--out", "none",
                "--features", "features")  # fmt: skip
    assert (ended.code, "pass only one" in ended.error) == (2, True), ended.error


@pytest.mark.parametrize("system", ["image-bert", "tden", "vl-bert"])
def test_features_without_classes_say_which_objective_wants_them(
    own: Path, run: Callable[..., Result], system: str
) -> None:
    for number in range(COUNT):
        given(own / "features" / f"{number:03d}.npz", seed=number, classes=None)
    at = ("pretrain", f"{system}/small/pretrain", "--data", "mine.jsonl", "--features", "features", "--out", "one",
          "--set", "training.steps=1", "--set", "training.batch=4", "--set",
          "training.validate_every=null")  # fmt: skip
    refused = run(*at)
    assert (refused.code, "the features in one/store lack classes" in refused.error) == (2, True), refused.error
    setting = refused.error.partition("leave that objective out: --set ")[2].split()[0]
    assert run(*at, "--set", setting).code == 0
