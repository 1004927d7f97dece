"""The test images that a model was trained on are counted, across sets and names, next to its scores."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from diptych.api.dataset import Dataset
from diptych.api.run import Run
from diptych.api.scoring import compare, evaluate
from diptych.api.training import finetune, pretrain
from diptych.cli import app
from diptych.core import Record
from diptych.data.extract.own_data import store_of
from diptych.data.leakage import FILE
from diptych.data.store.store import Store
from diptych.inference.card import Publisher, model_card
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.folder import ModelFolder, open_model
from diptych.runs.reports.html import page
from diptych.runs.reports.report import Arm, Comparison, Report
from diptych.runs.reports.tables import score_table
from tests.library.api.conftest import TINY

NONE = "0 of 4 scored images were trained on, and 0 near copies"
CANNOT_SAY = "the training images of this model are unknown"


def place(record: Record) -> Path:
    assert record.image is not None
    return record.image


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second set, which has no image of the first."""
    from diptych_world.files import write

    folder = tmp_path_factory.mktemp("other") / "world"
    folder.mkdir()
    write(folder, {"train": 8, "test": 4}, seed=7, processes=1)
    return folder


@pytest.fixture(scope="module")
def pretrained(world: Path, detector: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings = TINY | {"data.split": "train"}
    out = tmp_path_factory.mktemp("pretrained") / "run"
    recipe = "unified-vlp/small/pretrain"
    return pretrain(world, recipe=recipe, out=out, detector=detector, steps=1, batch_size=8, settings=settings)


@pytest.fixture(scope="module")
def captioner(pretrained: Run, other: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("captioner") / "run"
    return finetune("caption", other, pretrained.folder, out=out, steps=1, batch_size=8)


@pytest.fixture(scope="module")
def mixed(world: Path, other: Path, detector: str, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Test images: one of each training set under another name, one saved again as a JPEG, and two new ones."""
    folder = tmp_path_factory.mktemp("mixed")
    first, second = (Dataset.read(path)["train"].records for path in (world, other))
    shutil.copy(place(first[0]), folder / "renamed.png")
    Image.open(place(first[1])).convert("RGB").save(folder / "again.jpg", quality=90)
    Image.open(place(second[0])).save(folder / "repacked.bmp")  # other bytes, the same pixels
    images = [folder / name for name in ("renamed.png", "again.jpg", "repacked.bmp")]
    images += [place(record) for record in Dataset.read(other)["test"].records[:2]]
    records = [Record(f"c{number}", "test", path, captions=("a dog",)) for number, path in enumerate(images)]
    records += [replace(first[5], key="t")]
    return store_of(records, folder, folder / "store", detector, Console(quiet=True))


def model(run: Run) -> ModelFolder:
    return open_model(run.folder)


def test_images_of_pretraining_and_of_finetuning_are_counted(captioner: Run, pretrained: Run, mixed: Store) -> None:
    trained_on = evaluate(captioner.folder, mixed).trained_on
    assert trained_on is not None
    assert (trained_on.exact, trained_on.near, trained_on.tested, trained_on.gaps) == (2, 1, 5, ())
    trained_on = score_model(model(pretrained), mixed, "test")[1].trained_on
    assert trained_on is not None
    assert (trained_on.exact, trained_on.near, trained_on.tested) == (1, 1, 5)


def test_none_is_shown_wherever_scores_are(captioner: Run, other: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = captioner.folder / "store"
    scores = evaluate(captioner.folder, store)
    assert scores.trained_on is not None
    assert scores.trained_on.text == NONE
    assert NONE in repr(scores)
    assert NONE in scores._repr_html_()
    assert type(scores).from_json(json.loads(json.dumps(scores.to_json()))) == scores
    console = Console(width=200)
    with console.capture() as shown:
        console.print(score_table(scores))
    assert NONE in shown.get()
    report = Report("A", "B", comparisons=(Comparison("C", (Arm("mine", scores),), ("CIDEr",)),))
    assert f"mine: {NONE}." in page(report)
    gain = compare(captioner.folder, captioner.folder, store)
    assert gain.notes[:2] == (f"A: {NONE}", f"B: {NONE}")
    capsys.readouterr()
    app(["evaluate", "--model", str(captioner.folder), "--data", str(store), "--json"], standalone_mode=False)
    written = json.loads(capsys.readouterr().out)
    assert written["trained_on"] == {"exact": 0, "near": 0, "tested": 4, "gaps": [], "text": NONE}
    app(["compare", str(captioner.folder), str(captioner.folder), "--data", str(store)], standalone_mode=False)
    assert f"B: {NONE}" in capsys.readouterr().out


def test_a_card_has_it(captioner: Run, tmp_path: Path) -> None:
    opened, of = model(captioner), {"data": "d", "split": "test", "precision": "fp32"}
    scores = evaluate(captioner.folder, captioner.folder / "store").to_json()
    (tmp_path / "s.json").write_text(json.dumps(scores | {"of": of | {"weights": opened.weights_checksum}}))
    assert f"- {NONE}." in model_card(opened, "me/kites", Publisher(scores=(tmp_path / "s.json",)))


def test_a_model_without_a_list_says_so(pretrained: Run, captioner: Run, tmp_path: Path) -> None:
    bare = replace(model(pretrained), seen=None).save(tmp_path / "bare")
    assert not (bare.folder / FILE).exists()
    assert open_model(bare.folder).seen is None
    trained_on = score_model(bare, Store(captioner.folder / "store"), "test")[1].trained_on
    assert trained_on is not None
    assert (trained_on.exact, trained_on.near, trained_on.text) == (None, None, CANNOT_SAY)
    tuned = finetune("caption", captioner.folder / "store", bare.folder, out=tmp_path / "run", steps=1, batch_size=8)
    trained_on = evaluate(tuned.folder, captioner.folder / "store").trained_on
    assert trained_on is not None
    assert trained_on.text == f"{NONE}; the training images of its start model are unknown"


def test_check_compares_a_store_with_a_model(captioner: Run, mixed: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["check", str(mixed.folder), "--model", str(captioner.folder), "--json"], standalone_mode=False)
    assert ended.value.code == 1
    report = json.loads(capsys.readouterr().out)
    (found,) = [one for one in report["findings"] if one["kind"] == "trained on"]
    assert (found["severity"], found["count"]) == ("error", 3)
    assert report["trained_on"]["text"] == "2 of 5 scored images were trained on, and 1 near copy"
    app(["check", str(captioner.folder / "store"), "--model", str(captioner.folder)], standalone_mode=False)
    assert f"val and test: {NONE}" in capsys.readouterr().out
