"""A list of labels belongs to its task: no other task inherits or reads it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from diptych.core.folders import INNER
from diptych.data.store.store import Store
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.folder import CHECKS, ModelFolder, open_model
from diptych.runs.run import run
from diptych.runtime.configs import derive
from diptych.runtime.errors import RecipeError
from diptych.runtime.files import checksum
from diptych.serving.card import Publisher, model_card
from diptych.serving.model_facts import offered_tasks
from diptych.systems import RECIPES, add_task
from diptych.tasks import VQA
from diptych.tasks.vqa import Vqa
from diptych.testing.runs import toy_recipe, toy_store
from tests.tables import added

SHORT = {"training.steps": 2, "training.checkpoint_every": 2}


class Colours(Vqa):
    name = "colours"


@pytest.fixture
def labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that collects labels as VQA does, and trains the same head by them."""
    made = replace(
        VQA,
        name="colours",
        title="Colours",
        build=lambda given: Colours(given.tokens, given.answers, given.max_words, given.answer_slot, "softmax"),
        training=replace(VQA.training, objectives=(), begin=None, notes=None, calibrate=None),
        interface=None,
    )
    added(monkeypatch, lambda: add_task(made))


def trained(task: str, folder: Path, start: ModelFolder | None = None) -> ModelFolder:
    recipe = toy_recipe("image-bert/small/vqa", **SHORT)
    recipe = derive(recipe, task=task, name=f"image-bert/small/{task}")
    return run(recipe, Store(folder / "store"), folder / f"{task}-out", start, Console(quiet=True)).model


@pytest.mark.usefixtures("labelled")
def test_another_task_collects_its_own_labels(tmp_path: Path) -> None:
    toy_store(tmp_path / "store")
    vqa = trained("vqa", tmp_path)
    assert offered_tasks(vqa) == ("ask",)
    assert isinstance(json.loads((vqa.folder / "answers.json").read_text()), list), "files of VQA are as before"
    other = open_model(trained("colours", tmp_path, vqa).folder)
    assert other.answers is not None
    assert other.answers.task == json.loads((other.folder / "answers.json").read_text())["task"] == "colours"
    assert offered_tasks(other) == ()
    assert isinstance(other.task(), Colours)
    with pytest.raises(RecipeError, match="no list of answers; fine-tune it: diptych finetune vqa"):
        other.task("vqa")
    card = model_card(other, "me/colours", Publisher())
    assert "answers questions" not in card
    assert "visual-question-answering" not in card


@pytest.mark.usefixtures("labelled")
def test_labels_that_name_no_task_are_of_the_task_of_the_model(tmp_path: Path) -> None:
    """A folder made before lists kept their task's name."""
    toy_store(tmp_path / "store")
    made = trained("colours", tmp_path)
    path = made.folder / "answers.json"
    path.write_text(json.dumps(json.loads(path.read_text())["names"]))
    checks = json.loads((made.folder / CHECKS).read_text()) | {path.name: checksum(path)}
    (made.folder / CHECKS).write_text(json.dumps(checks))
    opened = open_model(tmp_path / "colours-out" / INNER)
    assert opened.answers is not None
    assert opened.answers.task == "colours"


def test_a_pretrained_model_without_a_decoder_is_not_evaluated(tmp_path: Path) -> None:
    store = Store(toy_store(tmp_path / "store"))
    made = run(toy_recipe("vl-bert/small/pretrain", **SHORT), store, tmp_path / "out", None, Console(quiet=True)).model
    wanted = (
        r"was not trained for a task \(vl-bert has no decoder for captions\); run diptych finetune TASK --data DATA --"
    )
    with pytest.raises(RecipeError, match=wanted):
        score_model(made, store, "val")
    assert "vl-bert/small/vqa" in RECIPES
