"""Retrieval with and without written captions, at a tiny size: its arms, its figures, and that it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from diptych.data.store.store import Store
from diptych.metrics.retrieval import RECALLS
from diptych.runs.run import run
from diptych.runtime.errors import DataError, RecipeError
from diptych.systems import find_recipe
from experiments.captions_as_data import (
    ARMS,
    MORE,
    PLAIN,
    CaptionStudy,
    caption_study,
    figures,
    keep_few,
    teach_captioner,
    teach_retriever,
    write_more,
)
from tests.support.scenes import TINY, scene_store

FEW = (
    "training.batch=4", "training.threads=1", "training.precision=fp32", "training.validate_every=2",
    "data.validation_records=2", "decoding.max_words=6",
)  # fmt: skip


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> CaptionStudy:
    folder = tmp_path_factory.mktemp("study")
    store = scene_store(folder / "store", {"train": 8, "val": 3, "test": 5})
    recipe = find_recipe("unified-vlp/small/pretrain", [*TINY, *FEW, "data.split=train", "training.steps=2"])
    run(recipe, store, folder / "pretrain", console=Console(quiet=True))
    return CaptionStudy(
        model=str(folder / "pretrain"), store=str(folder / "store"), out=str(folder / "out"), pictures=6, written=2,
        gallery=4, held_out=2, seeds=1, taught_steps=2, steps=2, settings=(*FEW, "model.max_regions=32"),
    )  # fmt: skip


def test_two_arms_search_the_same_pictures(plan: CaptionStudy) -> None:
    keep_few(plan)
    told = write_more(plan)
    rows = [teach_retriever(plan, arm, 0) for arm in ARMS]
    assert [len(row["found"]) for row in rows] == [4 + 4 * 5] * 2
    few, more = Store(plan.store_of(PLAIN)), Store(plan.store_of(MORE))
    assert few.splits == more.splits == {"train": 6, "val": 2, "test": 4}
    assert {len(few.words(index).captions) for index in few.split("train")} == {1}
    assert sum(len(more.words(index).generated) for index in range(len(more))) > 0
    assert not any(more.words(index).generated for index in [*more.split("val"), *more.split("test")])
    assert (told["captioner"], told["captions per picture of its training"], told["pictures"]) == ("unified-vlp", 1, 6)
    assert told["new captions"] == sum(len(more.words(index).generated) for index in range(len(more)))
    seen: list[object] = []
    study = caption_study(plan, 1, seen.append)
    assert not seen, "what has a row is not run again"
    assert study["written"] == told
    with pytest.raises(RecipeError, match=r"holds another study \(written: 9, was 2\); repeat these settings"):
        caption_study(replace(plan, written=9), 1, seen.append)
    assert set(study["gain of written captions"]) == {f"{way} R@{k}" for way in RECALLS.values() for k in (1, 5, 10)}
    assert {row["arm"]: row["image retrieval R@1"] for row in study["rounds"]} == {
        r["arm"]: r["image retrieval R@1"] for r in rows
    }


def test_the_gain_by_hand() -> None:
    """Two pictures with a caption each, two seeds; written captions find one more of four."""

    def found(*ranks: int) -> list[list[object]]:
        return [[asks, f"p{n}", rank] for asks in ("captions", "pictures") for n, rank in enumerate(ranks)]

    rows = {
        (PLAIN, 0): {"found": found(0, 3)}, (PLAIN, 1): {"found": found(0, 4)},
        (MORE, 0): {"found": found(0, 0)}, (MORE, 1): {"found": found(0, 7)},
    }  # fmt: skip
    told = figures(rows, 2)
    assert told[PLAIN]["image retrieval R@1"] == {"value": 50, "low": 0, "high": 100}
    assert told[MORE]["image retrieval R@1"] == {"value": 75, "low": 50, "high": 100}
    assert told["gain of written captions"]["image retrieval R@1"] == {"value": 25, "low": 0, "high": 50}
    assert told["gain of written captions"]["image retrieval R@5"] == {"value": -25, "low": -50, "high": 0}


def test_what_cannot_be_compared(plan: CaptionStudy, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"8 training images, expected 80 \(--pictures\)"):
        keep_few(replace(plan, pictures=80, out=str(tmp_path)))
    settings = [*TINY, *FEW, "data.split=train", "training.steps=1"]
    store = Store(Path(plan.store))
    reader = run(find_recipe("image-bert/small/pretrain", settings), store, tmp_path / "r", console=Console(quiet=True))
    with pytest.raises(RecipeError, match="image-bert cannot generate captions; pass another --model"):
        teach_captioner(replace(plan, model=str(reader.model.folder)))
