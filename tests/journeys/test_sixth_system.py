"""A system that `src` does not know goes all the way from the tests' folder: docs/add-a-model.md says how."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from diptych.core import Batch, FeatureContract, Objective, Question, Record, StateModel, States
from diptych.data.store.store import Store, StoreWriter
from diptych.models.weights import digest
from diptych.objectives import together
from diptych.runs.folder import open_model
from diptych.runs.predict import predict
from diptych.runtime.errors import RecipeError
from diptych.systems import RECIPES, add_system, find_recipe, find_selection
from diptych.systems.system import OBJECTIVES
from diptych.testing import Case, check_heads, check_masks
from diptych.vision.detectors.open import open_detector
from tests.journeys.conftest import Result
from tests.support import sixth, toy
from tests.support.tables import added


def store_in(folder: Path) -> Path:
    contract = FeatureContract("given", "", feature_size=6, class_names=tuple("abcd"))
    with StoreWriter(folder, contract) as writer:
        for number in range(10):
            asked = (Question(f"q{number}", "what is it?", (("dog", "bird")[number % 2],) * 10),)
            split = "test" if number > 7 else "val" if number > 5 else "train"
            seen = toy.regions(2, number)
            writer.add(Record(f"r{number}", split, captions=("a dog and a bird",), questions=asked, regions=seen))
    return folder


def test_it_is_pretrained_finetuned_asked_and_scored(
    tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    sixth.add(monkeypatch)
    store, start, tuned = store_in(tmp_path / "store"), tmp_path / "pretrain", tmp_path / "vqa"
    result = run("pretrain", "sixth/small/pretrain", "--data", store, "--out", start)
    assert result.code == 0, result.error
    result = run("finetune", "vqa", "--data", store, "--model", start, "--out", tuned, "--set", "training.steps=2")
    assert result.code == 0, result.error
    model = open_model(tuned)
    assert isinstance(model.model, sixth.Sixth)
    assert digest(model.model) != digest(open_model(start).model)
    assert {said["answer"] for said in predict(model, Store(store), "test").predictions} <= {"dog", "bird"}
    result = run("evaluate", "--model", tuned, "--data", store, "--json")
    assert result.code == 0, result.error
    assert 0 <= json.loads(result.out)["scores"]["accuracy"]["value"] <= 100


def test_a_model_that_reads_padding_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sixth.add(monkeypatch)
    case = Case.of("sixth/small/pretrain")
    assert check_masks(case) > 0, "it computes all states, and those that nothing reads are disturbed"
    forward = torch.nn.TransformerEncoder.forward
    monkeypatch.setattr(
        torch.nn.TransformerEncoder, "forward", lambda self, x, src_key_padding_mask=None: forward(self, x)
    )
    with pytest.raises(AssertionError, match="padding is read"):
        check_masks(case)


@dataclass(frozen=True)
class Unnamed(Objective):
    """It reads [CLS] and all regions, and names neither the states of regions nor a head that reads [CLS]."""

    special: bool

    heads: ClassVar = frozenset({"similarity"})

    def loss(self, model: StateModel, states: States, batch: Batch) -> torch.Tensor:
        return (states.special["cls"] if self.special else states.regions).square().sum()


@pytest.mark.parametrize("special", [True, False])
def test_states_that_no_request_names_are_found_in_a_model_without_rows(
    special: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sixth.add(monkeypatch)
    case = Case.of("sixth/small/pretrain", schedule=together(Unnamed(special)))
    with pytest.raises(AssertionError, match="not close"):
        check_masks(case)


def test_heads_that_read_more_than_they_name_are_found_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sixth.add(monkeypatch)
    case = Case.of("sixth/small/vqa")
    assert check_heads(case) > 0
    case.model.heads["answer"].reads = frozenset({"cls"})
    with pytest.raises(AssertionError, match="not close"):
        check_heads(case)


def test_an_embedding_grows_when_it_is_finetuned(
    tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    sixth.add(monkeypatch)
    store, start, tuned = store_in(tmp_path / "store"), tmp_path / "pretrain", tmp_path / "vqa"
    result = run("pretrain", "sixth/small/pretrain", "--data", store, "--out", start, "--set", "training.steps=2")
    assert result.code == 0, result.error
    grown = RECIPES["sixth/small/vqa"].but("sixth/small/vqa/marks", "With one mark more.", model={"marks": 2})
    monkeypatch.setitem(RECIPES, grown.name, grown)
    given = ("--recipe", grown.name, "--data", store, "--model", start, "--set", "training.steps=1")
    result = run("finetune", "vqa", *given, "--set", "optimizer.lr=1e-12", "--out", tuned)
    assert result.code == 0, result.error
    assert "marks.weight grows from 1 to 2 rows; new rows are random" in " ".join(result.error.split())
    before, after = (open_model(folder).model.state_dict()["marks.weight"] for folder in (start, tuned))
    torch.testing.assert_close(after[:1], before)
    assert after.shape == (2, 16)


def test_its_objectives_train_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    sixth.add(monkeypatch)
    recipe = find_recipe("image-bert/small/pretrain", ["objectives=sixth", "objectives.rate=0.5"])
    assert recipe.objectives == sixth.SixthObjectives(rate=0.5)
    with pytest.raises(RecipeError, match="needs two passes, but sixth provides regions, text"):
        find_recipe("sixth/small/pretrain", ["objectives=tden"])


def test_a_task_that_it_declines_has_no_recipe_and_its_reason_is_given(
    tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = replace(sixth.ENTRY, declines={"referring": "its regions do not see the text"})
    added(monkeypatch, lambda: add_system(entry))
    assert "sixth/small/nlvr" in RECIPES
    assert "sixth/small/referring" not in RECIPES
    store, start = store_in(tmp_path / "store"), tmp_path / "pretrain"
    result = run("pretrain", "sixth/small/pretrain", "--data", store, "--out", start, "--set", "training.steps=1")
    assert result.code == 0, result.error
    result = run("finetune", "referring", "--data", store, "--model", start, "--out", tmp_path / "out")
    assert result.code == 2
    assert "(sixth declines referring: its regions do not see the text)" in result.error


def test_its_regions_are_selected_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    sixth.add(monkeypatch)
    with pytest.raises(RecipeError, match=r"no detector 'nowhere'"):
        open_detector("nowhere", [], select=find_selection("sixth"))
    with pytest.raises(RecipeError, match=r"no selection 'sixt'; .*; did you mean sixth"):
        find_selection("sixt")


def test_what_is_not_told_of_it_is_refused_in_a_sentence(
    tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    sixth.add(monkeypatch)
    monkeypatch.delitem(OBJECTIVES, "sixth")
    monkeypatch.delitem(RECIPES, "sixth/small/vqa")
    with pytest.raises(RecipeError, match="expected the system that has the wanted objectives"):
        find_recipe("image-bert/small/pretrain", ["objectives=sixth"])
    with pytest.raises(RecipeError, match=r"no recipe 'sixth/small/vqa'; did you mean"):
        find_recipe("sixth/small/vqa")
    result = run(
        "import", "sixth", tmp_path / "theirs.bin", "--out", tmp_path / "model", "--vocab", tmp_path / "vocab.txt"
    )
    assert result.code != 0
    assert "no importer for 'sixth'" in result.error
    result = run("pretrain", "sixth/small/pretrain", "--data", store_in(tmp_path / "store"), "--out", tmp_path / "out",
               "--init", tmp_path / "bert.bin", "--vocab", tmp_path / "vocab.txt")  # fmt: skip
    assert result.code != 0
    assert "Traceback" not in result.error
