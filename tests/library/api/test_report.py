"""The report of a user's own run: written by `finetune` and `evaluate`, whole in one file, with hostile captions."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.api.dataset import Dataset
from diptych.api.run import Run
from diptych.api.scoring import evaluate
from diptych.api.training import finetune, pretrain
from diptych.cli import app
from diptych.core import Record
from diptych.data.store.store import Store
from diptych.runtime.errors import DiptychError, OutputError, RecipeError
from tests.library.api.conftest import TINY
from tests.support.hostile import HOSTILE


def test_a_finished_run_has_a_report_on_its_validation_images(captioner: Run) -> None:
    page = (captioner.folder / "report.html").read_text()
    assert page.count("<article") == 4
    assert page.count('href="data:image/jpeg;base64,') == 4
    assert "Captions of 4 val images" in page
    assert "Captions: CIDEr on val, estimated" in page
    assert "with the best CIDEr on training" in page
    assert not re.search(r'(?:src|href)="(?!data:image/jpeg;base64,|#)', page)


@pytest.mark.parametrize(
    ("task", "system", "shown"),
    [
        ("vqa", "unified-vlp", "answers are wrong"), ("nlvr", "vl-bert", "answers are wrong"),
        ("vcr", "vl-bert", "answers are wrong"), ("referring", "vl-bert", "1 true"),
        ("retrieval", "unified-vlp", 'class="hits"'), ("retrieval", "tden", 'class="hits"'),
    ],
)  # fmt: skip
def test_every_task_has_a_report(task: str, system: str, shown: str, captioner: Run, tmp_path: Path) -> None:
    sizes = {name: value for name, value in TINY.items() if system != "tden" or name != "model.layers"}
    sizes["model.positions"] = 64
    made = finetune(task, captioner.folder / "store", recipe=f"{system}/small/{task}", out=tmp_path / "run", steps=1,
                    batch_size=4, settings=sizes)  # fmt: skip
    page = (made.folder / "report.html").read_text()
    assert page.count("<article") >= 3, "one image has no question for vcr"
    assert shown in page
    assert " val images" in page


def test_a_run_that_is_not_validated_has_none(world: Path, detector: str, tmp_path: Path) -> None:
    recipe = "unified-vlp/small/caption"
    alone = [one for one in Dataset.read(world).records if one.split == "train"]
    made = finetune("caption", Dataset(alone), recipe=recipe, out=tmp_path / "run", detector=detector, steps=1,
                    batch_size=8, settings=TINY)  # fmt: skip
    assert not (made.folder / "report.html").exists(), "no image to validate on"
    begun = pretrain(world, recipe="unified-vlp/small/pretrain", out=tmp_path / "pretrain", detector=detector, steps=1,
                     batch_size=8, settings=TINY | {"data.split": "train"})  # fmt: skip
    assert not (begun.folder / "report.html").exists(), "pre-training has no task"


def test_an_evaluation_writes_a_page_and_the_score_of_each_image(
    captioner: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, page, said = captioner.folder / "store", tmp_path / "page.html", tmp_path / "said.json"
    scores = evaluate(captioner, Store(store), report=page)
    by_key = {row.key: row for row in scores.rows}
    assert len(by_key) == 6
    text = page.read_text()
    assert all(f"CIDEr {100 * row.value:.1f} · {key}" in text for key, row in by_key.items())
    page.unlink()
    arguments = ["evaluate", "--model", str(captioner.folder), "--data", str(store), "--json", "--out"]
    app([*arguments, str(page)], standalone_mode=False)
    capsys.readouterr()
    app([*arguments, str(said)], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["scores"].keys() == scores.to_json()["scores"].keys()
    assert {one["key"]: one["item_score"] for one in json.loads(said.read_text())} == {
        key: pytest.approx(100 * row.value) for key, row in by_key.items()
    }
    assert "6 of 6 images" in page.read_text()


def test_a_report_does_not_replace_the_file_of_a_user(captioner: Run, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("mine")
    arguments = ["--model", str(captioner.folder), "--data", str(captioner.folder / "store")]
    with pytest.raises(OutputError, match=r"page\.html"):
        app(["evaluate", *arguments, "--out", str(tmp_path / "page.html")], standalone_mode=False)
    assert (tmp_path / "page.html").read_text() == "mine"
    with pytest.raises(RecipeError, match=r"^report: found int '5', expected the path of an HTML file"):
        evaluate(captioner, captioner.folder / "store", report=5)  # type: ignore[arg-type]
    with pytest.raises(DiptychError, match=r"cannot write .*missing/page\.html"):
        evaluate(captioner, captioner.folder / "store", report=tmp_path / "missing" / "page.html")


def test_captions_of_others_do_nothing(
    captioner: Run, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: Callable[[Store, int], Record] = Store.words

    def hostile(store: Store, index: int) -> Record:
        return replace(words(store, index), captions=(HOSTILE,))

    monkeypatch.setattr(Store, "words", hostile)
    evaluate(captioner, Store(captioner.folder / "store"), report=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert len(re.findall("<script", page)) == 1
    assert "&lt;script&gt;alert(" in page
    assert "no ceiling: it needs two or more reference captions" in page
