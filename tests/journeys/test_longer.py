"""A run that has ended is made longer, and a model is scored in other ways than its recipe's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.journeys.conftest import Result, tiny

SHORT = tiny(**{"training.steps": 4, "training.validate_every": 4, "data.split": "train"})
PRETRAIN = ("pretrain", "unified-vlp/small/pretrain", *SHORT)


def test_a_longer_run_is_the_run_that_was_long_from_the_beginning(
    world: Path, tmp_path: Path, run: Callable[..., Result]
) -> None:
    """Where the rate does not depend on the length."""
    at = (*PRETRAIN, "--data", world, "--set", "optimizer.schedule=constant", "--set", "training.average_best=1",
          "--set", "training.validate_every=null")  # fmt: skip
    assert run(*at, "--out", tmp_path / "one").code == 0
    longer = ("--set", "training.steps=7", "--set", "training.log_every=2")
    result = run(*at, "--out", tmp_path / "one", *longer)
    assert result.code == 0, result.error
    assert "resumes to 7 steps, was 4; learning rates stay as they are" in result.error
    assert "resuming after step 4" in result.error
    assert run(*at, "--out", tmp_path / "other", *longer).code == 0
    one, other = (load_file(tmp_path / name / "model/model.safetensors") for name in ("one", "other"))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert json.loads((tmp_path / "one/recipe.json").read_text())["training"]["steps"] == 7
    shorter = run(*at, "--out", tmp_path / "one")
    assert (shorter.code, "training.steps: 4, was 7; the steps of a run can only be" in shorter.error) == (2, True)


def test_a_schedule_that_falls_to_the_end_is_said_to_rise_again(
    world: Path, tmp_path: Path, run: Callable[..., Result]
) -> None:
    at = (*PRETRAIN, "--data", world, "--out", tmp_path)
    assert run(*at).code == 0
    result = run(*at, "--set", "training.steps=6")
    assert (result.code, "follow the linear schedule of 6 steps, so the result differs from that" in result.error) == (
        0,
        True,
    )
    other = run(*at, "--set", "training.steps=6", "--set", "training.batch=4")
    assert (other.code, "training.batch: 4, was 8" in other.error, "log_every" in other.error) == (2, True, False)


@pytest.fixture(scope="module")
def captioner(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from diptych.data.store.store import Store
    from diptych.runs.run import run as train
    from diptych.systems import find_recipe

    folder = tmp_path_factory.mktemp("captioner")
    settings = [word for word in (*SHORT, "decoding.beams=1") if word != "--set"]
    train(find_recipe("unified-vlp/small/pretrain", settings), Store(world), folder)
    return folder


def test_captions_are_scored_as_they_are_asked_for(
    captioner: Path, world: Path, tmp_path: Path, run: Callable[..., Result]
) -> None:
    def scored(*options: object) -> tuple[list[str], str]:
        written = tmp_path / "written.json"
        result = run("evaluate", "--model", captioner, "--data", world, "--out", written, *options)
        assert result.code == 0, result.error
        assert "scoring 12 captions" in result.error
        return [line["caption"] for line in json.loads(written.read_text())], " ".join(result.out.split())

    usual, printed = scored()
    assert "captions written with" not in printed
    longer, printed = scored("--min-words", 9, "--no-repeat-ngram", 1, "--beams", 3)
    assert "beams 3 (recipe: 1)" in printed
    assert longer != usual
    assert all(len(text.split()) == len(set(text.split())) for text in longer)
    drawn = [scored("--temperature", 1, "--seed", seed)[0] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_ways_of_writing_are_of_captions(captioner: Path, world: Path, run: Callable[..., Result]) -> None:
    result = run("score", "none.json", "--beams", 3)
    assert (result.code, "No such option: --beams" in result.error) == (2, True)
    result = run("evaluate", "--model", captioner, "--data", world, "--task", "retrieval", "--beams", 3)
    assert result.code == 2
    result = run("evaluate", "--model", captioner, "--data", world, "--top-k", 5, "--beams", 3)
    assert (result.code, "sample cannot be combined with beam search" in result.error) == (2, True)


def test_the_version(run: Callable[..., Result]) -> None:
    from diptych import __version__

    assert run("--version").out == f"diptych {__version__}\n"
