"""Rows "without pre-training": a task is learnt from nothing by a recipe that says how."""

from collections.abc import Callable
from pathlib import Path

from tests.journeys.conftest import Result, tiny
from tests.support.scenes import scene_store


def test_a_task_is_learnt_from_nothing(run: Callable[..., Result], tmp_path: Path) -> None:
    scene_store(tmp_path / "store", {"train": 4})
    asked = ("finetune", "vqa", "--from-scratch", "--data", tmp_path / "store", "--out", tmp_path / "run")
    result = run(*asked)
    assert result.code != 0
    assert "Missing --recipe: with --from-scratch, only the recipe names the system" in result.error
    result = run(*asked, "--recipe", "vl-bert/small/caption")
    assert result.code != 0
    result = run(*asked, "--recipe", "vl-bert/small/retrieval")
    assert "is for retrieval, but the task is vqa" in result.error
    result = run(*asked, "--recipe", "vl-bert/vqa")
    assert "starts, as in the paper, from BERT base" in result.error
    without = [word for word in asked if word != "--from-scratch"]  # weights of `init` are a start too
    assert "--from-scratch with --recipe NAME: pass one of the two" in run(*without).error
    result = run(*without, "--recipe", "vl-bert/small/vqa", "--set", f"init={tmp_path / 'words.whl'}")
    assert "words.whl is missing; pass the path of a zip or wheel" in result.error
    assert not (tmp_path / "run").exists(), "nothing is written before"
    result = run(*asked, "--recipe", "vl-bert/small/vqa", *tiny(), "--set", "training.validate_every=null")
    assert result.code == 0, result.error
    assert (tmp_path / "run" / "model" / "config.json").is_file()
