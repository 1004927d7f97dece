"""VL-BERT and ImageBERT from the command line: train -> predict -> score."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import diptych as library
from diptych.data.store.store import Store
from diptych.runs.run import run as train
from diptych.systems import find_recipe
from tests.journeys.conftest import Result, diptych, tiny

SYSTEMS = ("vl-bert", "image-bert")
SHORT = {
    "data.split": "train",
    "training.steps": 8,
    "training.validate_every": 4,
    "training.checkpoint_every": 2,
}


@pytest.fixture(scope="session", params=SYSTEMS)
def pretrained(request: pytest.FixtureRequest, world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp(request.param) / "pretrain"
    train(find_recipe(f"{request.param}/small/pretrain", tiny(**SHORT)[1::2]), Store(world), out)
    return out


def test_it_answers_and_is_scored(world: Path, pretrained: Path, tmp_path: Path) -> None:
    diptych("finetune", "vqa", "--data", world, "--model", pretrained, "--out", tmp_path, *tiny(**SHORT))
    model = library.load(tmp_path)
    answer = model.ask(Store(world).record(0), ["how many birds are there?", "is it night?"])
    assert set(answer) <= set(model.predictor.folder.answers.names) - {"<unk>"}  # type: ignore[union-attr]
    assert all(0 <= a.score <= 1 for a in answer)
    scores = json.loads(diptych("evaluate", "--model", tmp_path, "--data", world, "--json").stdout)["scores"]
    assert {"accuracy", "accuracy yes/no"} <= set(scores)


def test_it_has_no_decoder_and_says_so(
    run: Callable[..., Result], world: Path, pretrained: Path, tmp_path: Path
) -> None:
    done = run("finetune", "caption", "--data", world, "--model", pretrained, "--out", tmp_path)
    assert done.code == 2
    assert "Traceback" not in done.error
    assert not (tmp_path / "model").exists()
