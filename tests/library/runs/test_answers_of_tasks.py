"""A list of labels belongs to its task: no other task inherits or reads it."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from diptych.core import Record, TaskItem
from diptych.data.store.store import Store
from diptych.inference.card import Publisher, model_card
from diptych.inference.model_facts import offered_tasks
from diptych.runs import learner
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.folder import ModelFolder, open_model
from diptych.runs.run import run
from diptych.runtime.configs import derive
from diptych.runtime.errors import RecipeError
from diptych.systems import RECIPES, add_task
from diptych.tasks import VQA
from diptych.tasks.vqa import Vqa
from diptych.testing import EIGHT
from diptych.testing.runs import toy_recipe, toy_store
from tests.support.learning import notes_of
from tests.support.tables import added

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


def test_a_pretrained_model_without_a_decoder_is_not_evaluated(tmp_path: Path) -> None:
    store = Store(toy_store(tmp_path / "store"))
    made = run(toy_recipe("vl-bert/small/pretrain", **SHORT), store, tmp_path / "out", None, Console(quiet=True)).model
    wanted = (
        r"was not trained for a task \(vl-bert has no decoder for captions\); run diptych finetune TASK --data DATA --"
    )
    with pytest.raises(RecipeError, match=wanted):
        score_model(made, store, "val")
    assert "vl-bert/small/vqa" in RECIPES


def labelled_records(*labels: str) -> list[Record]:
    """Eight records, of which the last is for validation; each has a text with a label."""
    items = ((TaskItem(f"i{at}", "how nice", (label,)),) for at, label in enumerate(labels))
    return [replace(one, more={"classify": item}) for one, item in zip(EIGHT, items, strict=True)]


def test_the_list_of_a_classifier_grows_by_the_labels_of_new_data(tmp_path: Path) -> None:
    """The rows of known labels are kept (huggingface/optimum 197); what cannot be right is counted by `evaluate`."""
    recipe = toy_recipe("image-bert/small/classify", **SHORT, **{"optimizer.lr": 1e-12})
    before, after = (
        Store(toy_store(tmp_path / name, labelled_records(*labels)))
        for name, labels in {"ab": ["apple", "zebra"] * 4, "bc": ["mango", "zebra"] * 3 + ["apple", "mango"]}.items()
    )
    first = run(recipe, before, tmp_path / "first", None, Console(quiet=True)).model
    said = Console(record=True, width=400, file=StringIO())
    grown = run(recipe, after, tmp_path / "second", first, said).model
    assert grown.answers is not None
    assert grown.answers.names == ("apple", "zebra", "mango")
    assert "its list of labels grows by 1 label: mango" in said.export_text()
    for (name, old), new in zip(
        first.model.heads["classify"].state_dict().items(),
        grown.model.heads["classify"].state_dict().values(),
        strict=True,
    ):
        torch.testing.assert_close(new[:2] if name.startswith("out") else new, old)
    never = "1 of 1 items can never be right: the model's list has none of their answers (the first: i7, 'mango')"
    assert never in score_model(first, after, "val")[1].notes
    assert not any("never be right" in note for note in score_model(grown, after, "val")[1].notes)


def test_labels_that_a_limit_leaves_out_are_named_before_training(tmp_path: Path) -> None:
    store = Store(toy_store(tmp_path / "store", labelled_records("a", "b", "a", "b", "a", "b", "c", "c")))
    recipe = toy_recipe("image-bert/small/classify", **SHORT, **{"data.answers_most": 2})
    said = Console(record=True, width=400, file=StringIO())
    run(recipe, store, tmp_path / "out", None, said)
    assert (
        "1 of 7 texts are left out: the model's list has none of their answers (the first: i6, 'c')"
        in said.export_text()
    )


def test_questions_that_can_never_be_answered_rightly_are_counted(tmp_path: Path) -> None:
    store = Store(toy_store(tmp_path / "store"))
    model = trained("vqa", tmp_path)
    strange = [replace(one, questions=tuple(replace(q, answers=("quartz",)) for q in one.questions)) for one in EIGHT]
    other = Store(toy_store(tmp_path / "other", strange))
    assert not any("never be right" in note for note in score_model(model, store, "train")[1].notes)
    assert any(
        "can never be right: the model's list has none" in note for note in score_model(model, other, "val")[1].notes
    )


@pytest.mark.parametrize("gains", [True, False])
def test_bf16_is_named_on_a_processor_that_loses_by_it(
    gains: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(toy_store(tmp_path / "store"))
    monkeypatch.setattr(learner, "gains_by_bf16", lambda _: gains)
    said = [
        any("bf16 takes several times as long" in note for note in notes_of(tmp_path / precision, recipe, store))
        for precision in ("bf16", "fp32", "auto")
        for recipe in [toy_recipe("image-bert/small/vqa", **SHORT, **{"training.precision": precision})]
    ]
    assert said == [not gains, False, False]
