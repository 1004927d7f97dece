"""The study of captions that go round, at a tiny size: what it learns from, what it measures, and that it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from diptych.core import Record
from diptych.data.store.store import Store
from experiments.hard_world import goes_round, long_captions
from experiments.looping import (
    ARMS,
    AS_IT_IS,
    OF_EVERY_ARM,
    SAID_BY_PEOPLE,
    SEARCHES,
    SMALL,
    LoopStudy,
    about,
    loop_study,
    prepared,
    teach,
)  # fmt: skip
from tests.support.scenes import scene_store

TINY = (
    *LoopStudy.settings, "model.width=16", "model.heads=2", "model.layers=1", "model.ffn=32", "training.precision=fp32",
    "decoding.max_words=6", "training.log_every=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scene_store(tmp_path_factory.mktemp("world") / "store", {"train": 8, "val": 1, "test": 4}).folder


def test_long_captions_are_pairs_that_do_not_go_round() -> None:
    said = ("a red dog", "a cat on a mat", "a red dog")
    assert set(long_captions(Record("a", captions=said), 0)) == {
        "a red dog and a cat on a mat", "a cat on a mat and a red dog"
    }  # fmt: skip
    assert long_captions(Record("a", captions=("a red dog runs", "now a red dog sits")), 0) == ()
    assert goes_round("a red shirt and a red shirt")
    assert not goes_round("a red shirt and a black shirt")


def test_what_is_measured() -> None:
    said = {"a": "a dog and a cat and a dog", "b": "a dog and a cat and a cat and a cat"}
    told = about(said, {"a": ["a dog and a cat"], "b": ["a bird"]})
    assert told["words a caption"] == 9.5
    assert told["different words"] == 4
    assert told["captions with three words twice"] == 50  # "and a cat" of the second
    assert told["captions that name a kind twice"] == 100
    assert told["CIDEr"]["value"] > 0


def test_each_arm_learns_once_and_writes_by_its_searches(store: Path, tmp_path: Path) -> None:
    arms = (f"a vocabulary of {SMALL}",)
    plan = LoopStudy(str(store), str(tmp_path / "out"), pictures=6, test=3, steps=1, batch=2, settings=TINY, arms=arms)
    hard = prepared(plan)
    threads = torch.get_num_threads()
    rows = [teach(plan, arm) for arm in arms]  # in this process, which starts none
    torch.set_num_threads(threads)
    seen: list[object] = []
    told = loop_study(plan, 1, seen.append)
    assert not seen, "what has a row is not learnt again"
    assert [*told] == [SAID_BY_PEOPLE, *arms]
    assert [{arm: told[arm]} for arm in arms] == rows
    assert set(told[arms[0]]) == set(OF_EVERY_ARM) < set(SEARCHES)
    assert told[arms[0]]["3 beams, no 3 words twice"]["captions with three words twice"] == 0
    assert all(0 <= row["captions that name a kind twice"] <= 100 for arm in told.values() for row in arm.values())
    whole = Store(store)
    assert hard.splits == {"train": 6, "val": 1, "test": 3}
    first = whole.split("test")[0]
    made = hard.record(hard.split("test")[0])
    seen_before = whole.regions(first)
    assert made.regions is not None
    assert made.regions.features is not None
    assert seen_before.features is not None
    assert not torch.equal(made.regions.features, seen_before.features)
    assert torch.equal(made.regions.boxes, seen_before.boxes)


def test_settings_of_the_arms_are_those_of_the_recipe() -> None:
    from diptych.systems import find_recipe
    from experiments.looping import RECIPE

    recipe, plan = find_recipe(RECIPE), LoopStudy("a", "b")
    first = recipe.override(plan.of_arm(AS_IT_IS))
    for arm in ARMS:
        changed = {line.partition(":")[0] for line in recipe.override(plan.of_arm(arm)).differences(first)}
        words = {"data.vocabulary"} if arm == f"a vocabulary of {SMALL}" else set[str]()
        assert changed == {setting.partition("=")[0] for setting in ARMS[arm]} | words
