"""Rows "without pre-training": a task is learnt from nothing by a recipe that says how."""

from collections.abc import Callable
from pathlib import Path

from diptych.loading.extract import extract
from diptych.sources.storybook import record, scene
from diptych.vision.ground_truth import GroundTruth
from tests.journeys.conftest import Told, tiny


def test_a_task_is_learnt_from_nothing(run: Callable[..., Told], tmp_path: Path) -> None:
    records = [record(scene(0, "train", number)) for number in range(4)]
    extract(records, GroundTruth.of(records), tmp_path / "store")
    asked = ("finetune", "vqa", "--model", "none", "--data", tmp_path / "store", "--out", tmp_path / "run")
    told = run(*asked)
    assert told.code != 0
    assert "--recipe says what is trained" in told.error
    told = run(*asked, "--recipe", "vl-bert/small/caption")
    assert told.code != 0
    told = run(*asked, "--recipe", "vl-bert/small/retrieval")
    assert "teaches retrieval, and the task is vqa" in told.error
    told = run(*asked, "--recipe", "vl-bert/vqa")
    assert "begins, as in the paper, from BERT base" in told.error
    assert not (tmp_path / "run").exists(), "nothing is written before"
    told = run(*asked, "--recipe", "vl-bert/small/vqa", *tiny(), "--set", "training.validate_every=null")
    assert told.code == 0, told.error
    assert (tmp_path / "run" / "model" / "config.json").is_file()
