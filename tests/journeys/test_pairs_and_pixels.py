"""From the command line: pictures and texts read in pairs, in stages; and VL-BERT that learns to look."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from diptych.data.store.store import Store, iterate
from diptych.systems.recipe import Recipe
from diptych.vision.detectors.faster_rcnn import FasterRCNN, FasterRCNNConfig
from tests.journeys.conftest import Result, kill_at_its_first_checkpoint, tiny
from tests.support.logged import steps, weights

TEXTS = {
    "data.max_words": 20,
    "model.positions": 40,
    "model.max_regions": 8,
    "training.steps": 4,
    "training.checkpoint_every": 2,
}
PAIRS = tiny(**TEXTS, **{"training.batch": 4, "training.validate_every": 4})
PIXELS = tiny(
    **TEXTS,
    **{"data.split": "train", "data.pixels_shorter": 32, "model.network_cells": 1, "training.validate_every": "null"},
    **{"training.batch": 2},
)


@pytest.fixture
def store(with_detector: Path) -> Path:
    assert Store(with_detector.parent / "store").splits["train"] > 4
    return with_detector.parent / "store"


@pytest.mark.large
def test_stages_then_pairs_then_search(
    run: Callable[..., Result], store: Path, with_detector: Path, tmp_path: Path
) -> None:
    staged, tuned, pairs = tmp_path / "stages", tmp_path / "retrieval", tmp_path / "pairs"
    web = ("--set", "1.data.split=train")  # the photos have no split web
    result = run("pretrain", "image-bert/small/pretrain/web-then-train", "--data", store, "--out", staged, *PAIRS, *web)
    assert result.code == 0, result.error
    assert {path.name for path in staged.iterdir()} >= {"stage-1", "stage-2", "model"}
    tune = ("finetune", "retrieval", "--data", store, "--model", staged, *PAIRS, "--out")
    result = run(*tune, tuned)
    assert result.code == 0, result.error
    assert "regions of a picture" not in result.error
    result = run(*tune, tmp_path / "other", "--recipe", "image-bert/retrieval/36-regions")
    assert result.code == 0, result.error
    assert "keeps its architecture: width 32 (recipe: 768)" in result.error

    asked = ("rank", "--model", tuned, "--data", store, "--split", "train", "--pairs", pairs, "--json")
    first, kept = run(*asked), {path: path.stat().st_mtime_ns for path in pairs.iterdir()}
    again = run(*asked)
    assert json.loads(first.out)["scores"] == json.loads(again.out)["scores"]
    assert {path: path.stat().st_mtime_ns for path in pairs.iterdir()} == kept, "no pair is read again"
    other = run("rank", "--model", staged, "--data", store, "--split", "train", "--pairs", pairs, "--task", "retrieval")
    assert other.code == 2
    assert "scores of another model" in other.error

    photos, sheet = with_detector.parent / "photos", tmp_path / "sheet.png"
    result = run(
        "search", "a dog in the rain", "--images", photos, "--model", tuned, "--out", sheet, "--cache", tmp_path / "c"
    )
    assert result.code == 0, result.error
    with Image.open(sheet) as drawn:
        assert drawn.size[0] > 100
    page = sheet.with_suffix(".html").read_text()
    assert page.count("<img") == len(list(photos.iterdir()))
    assert "a dog in the rain" in page


@pytest.mark.large
@pytest.mark.usefixtures("server")
def test_learning_to_look_killed_and_gone_on_with(run: Callable[..., Result], store: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = FasterRCNNConfig("resnet18_fpn", ("background", "dog"), shorter=32, longer=64)
    FasterRCNN(shape.build(), shape).save(tmp_path / "detector")
    whole, killed, tuned = tmp_path / "whole", tmp_path / "killed", tmp_path / "vqa"
    begin = ("--set", f"network_init={tmp_path / 'detector'}")

    def pretrain(out: Path) -> tuple[object, ...]:
        return ("pretrain", "vl-bert/small/end-to-end", "--data", store, "--out", out, *PIXELS, *begin)

    result = run(*pretrain(whole))
    assert result.code == 0, result.error
    assert "120 loaded" in result.error
    kill_at_its_first_checkpoint(killed, *pretrain(killed))
    shutil.rmtree(tmp_path / "detector")  # the weights are in the checkpoint
    result = run(*pretrain(killed))
    assert result.code == 0, result.error
    assert weights(killed) == weights(whole)
    assert steps(killed) == [1, 2, 3, 4]

    tune = tiny(**TEXTS, **{"training.validate_every": "null", "training.batch": 2})  # reads pictures as the start does
    result = run("finetune", "vqa", "--data", store, "--model", killed, "--out", tuned, *tune)
    assert result.code == 0, result.error
    assert Recipe.load(tuned).data.pixels_shorter == 32
    said = tmp_path / "said.json"
    result = run("evaluate", "--model", tuned, "--data", store, "--split", "train", "--json", "--out", said)
    assert result.code == 0, result.error
    asked = [q.key for record in iterate(Store(store), "train") for q in record.questions]
    assert [one["key"] for one in json.loads(said.read_text())] == asked
