"""What is written for a server, read back as the server's own code reads it."""

from __future__ import annotations

import csv
import json
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from diptych.cli import app
from diptych.core import FeatureContract, Question, Record
from diptych.data.store.store import Store, StoreWriter
from diptych.models.decoding.chosen import chosen_decoding
from diptych.runs.evaluation.submit import FORMS, VCR_COLUMNS, Leaderboard, submit
from diptych.runs.folder import ModelFolder
from diptych.runs.run import run
from diptych.runtime.errors import DataError, RecipeError, UnsupportedError
from diptych.systems import find_recipe
from diptych.tasks.vcr import Vcr
from tests.support import deciding
from tests.support.scenes import TINY

SETTINGS = (
    *TINY, "training.batch=2", "training.steps=2",
    "training.validate_every=null", "training.precision=fp32", "training.threads=1", "model.max_regions=5",
    "model.whole_region=false",
)  # fmt: skip
CONTRACT = FeatureContract("given", "", 6, deciding.KINDS)


def asked_record(number: int) -> Record:
    """Of COCO's and VCR's kind, without any truth."""
    known = deciding.record(number)
    (choices,) = known.choices
    return replace(
        known,
        key=f"COCO_test2014_{70 + number:012d}",
        split="test",
        questions=(Question(f"{1 + number}001", "is it red?", ()), Question(f"{1 + number}002", "what is it?", ())),
        choices=(replace(choices, key=f"test-{number}", answer=-1, rationale=None),),
    )


def train_record(number: int) -> Record:
    record = deciding.record(number)
    asked = Question(f"{number}", "is it red?", ("yes" if number % 2 else "no",) * 10, "yes/no")
    return replace(record, split="train", captions=(f"a {deciding.KINDS[number]}",), questions=(asked,))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("world") / "store"
    with StoreWriter(folder, CONTRACT) as writer:
        for number in range(4):
            writer.add(train_record(number))
        for number in range(3):
            writer.add(asked_record(number))
    return Store(folder)


def taught(task: str, store: Store, folder: Path) -> ModelFolder:
    recipe = find_recipe(f"unified-vlp/small/{task}", SETTINGS)
    return run(recipe, store, folder, console=Console(quiet=True)).model


@pytest.fixture(scope="module")
def captioner(store: Store, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return taught("caption", store, tmp_path_factory.mktemp("runs") / "caption")


def test_captions_are_read_by_pycocotools(store: Store, captioner: ModelFolder, tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    line = submit(captioner, store, "test", "coco", tmp_path / "captions_test2014_results.json")
    assert line.endswith(
        "captions_test2014_results.json: caption of 3 images of 'test', in the format coco; for 3 images, the id is "
        "the number in the name (the first: COCO_test2014_000000000070)"
    )
    with redirect_stdout(StringIO()):
        truths = coco.COCO()
        truths.dataset = {"images": [{"id": 70 + n} for n in range(3)], "annotations": [], "info": {}}
        truths.createIndex()
        read = truths.loadRes(str(tmp_path / "captions_test2014_results.json"))
    assert sorted(read.getImgIds()) == [70, 71, 72]
    assert [type(one["caption"]) for one in read.dataset["annotations"]] == [str] * 3


def test_ids_are_those_of_the_data_and_never_guessed_from_other_names(captioner: ModelFolder, tmp_path: Path) -> None:
    names = [f"IMG_2024010112{number:02d}" for number in range(3)]
    for folder, ids in (("own", (70, 71, 72)), ("none", (None,) * 3)):
        with StoreWriter(tmp_path / folder, CONTRACT) as writer:
            for number, (name, image_id) in enumerate(zip(names, ids, strict=True)):
                writer.add(replace(asked_record(number), key=name, image_id=image_id))
    line = submit(captioner, Store(tmp_path / "own"), "test", "coco", tmp_path / "results.json")
    assert line.endswith("in the format coco")
    assert {one["image_id"] for one in json.loads((tmp_path / "results.json").read_text())} == {70, 71, 72}
    with pytest.raises(DataError, match="the record has no `image_id`"):
        submit(captioner, Store(tmp_path / "none"), "test", "coco", tmp_path / "results.json")


def test_answers_are_read_as_vqas_own_code_reads_them(store: Store, tmp_path: Path) -> None:
    """A list; its question ids are those of the set, no more and no fewer (GT-Vision-Lab/VQA, `VQA.loadRes`)."""
    submit(taught("vqa", store, tmp_path / "vqa"), store, "test", "vqa", tmp_path / "answers.json")
    found = json.loads((tmp_path / "answers.json").read_text("utf-8"))
    assert isinstance(found, list)
    assert {one["question_id"] for one in found} == {1001, 1002, 2001, 2002, 3001, 3002}
    assert len(found) == 6
    assert {one["answer"] for one in found} <= {"yes", "no"}


def test_a_model_that_was_trained_for_answers_submits_no_captions(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="was trained for vqa and cannot caption"):
        submit(taught("vqa", store, tmp_path / "vqa"), store, "test", "coco", tmp_path / "coco.json")
    assert not (tmp_path / "coco.json").exists()


def test_a_line_of_vcr_has_the_leaderboards_columns(store: Store, tmp_path: Path) -> None:
    """As models/eval_for_leaderboard.py of rowanz/r2c names and orders them."""
    model = taught("vcr", store, tmp_path / "vcr")
    submit(model, store, "test", "vcr", tmp_path / "vcr.csv")
    groups = ["answer", *(f"rationale_conditioned_on_a{a}" for a in range(4))]
    with (tmp_path / "vcr.csv").open(newline="") as file:
        head, *lines = csv.reader(file)
    assert head == ["annot_id", *(f"{group}_{n}" for group in groups for n in range(4))] == list(VCR_COLUMNS)
    assert [line[0] for line in lines] == ["test-0", "test-1", "test-2"]
    for line in lines:
        shares = [float(share) for share in line[1:]]
        assert [sum(shares[at : at + 4]) for at in range(0, 20, 4)] == pytest.approx([1.0] * 5, abs=1e-4)
        assert len({tuple(shares[at : at + 4]) for at in range(4, 20, 4)}) == 4, "each answer is read with its own"


def test_a_rationale_is_asked_after_each_answer_as_after_the_right_one(store: Store) -> None:
    known = deciding.record(1)
    (choices,) = known.choices
    asked = Leaderboard(deciding.TOKENS).queries(known)
    usual = Vcr(deciding.TOKENS).queries(known)
    assert len(asked) == 20
    of_right = [one for one in asked if one.group == f"{choices.key}/rationale_conditioned_on_a{choices.answer}"]
    assert [one.text.tolist() for one in of_right] == [one.text.tolist() for one in usual[4:]]
    assert [one.text.tolist() for one in asked[:4]] == [one.text.tolist() for one in usual[:4]]


def test_what_no_server_takes_is_refused(store: Store, captioner: ModelFolder, tmp_path: Path) -> None:
    path = tmp_path / "results"
    with pytest.raises(RecipeError, match=r"--format coca: unknown; did you mean coco\?"):
        submit(captioner, store, "test", "coca", path)
    with pytest.raises(RecipeError, match="was not trained for vqa; run diptych finetune vqa"):
        submit(captioner, store, "test", "vqa", path)
    with pytest.raises(DataError, match=r"does not end with its number in COCO, .* \(record p0\)"):
        submit(captioner, store, "train", "coco", path)
    folder = tmp_path / "twice"
    with StoreWriter(folder, CONTRACT) as writer:
        writer.add(asked_record(0))
        writer.add(replace(asked_record(0), key="COCO_val2014_000000000070"))
    with pytest.raises(DataError, match="the image_id 70 also belongs to 'COCO_test2014_000000000070'"):
        submit(captioner, Store(folder), "test", "coco", path)
    for key in ("9" * 5_000, "\u0663", "007"):  # more than Python reads, a digit of another script, not the number 7
        with pytest.raises(DataError, match="the key is not a question number of VQA v2"):
            FORMS["vqa"][1]([{"key": key, "answer": "yes"}])
    scored = [{"group": f"a/{group}", "score": 0.0} for group in VCR_COLUMNS[1:21:4] for _ in range(8)]
    groups = [{**one, "group": one["group"].removesuffix("_0")} for one in scored]
    with pytest.raises(DataError, match=r"two questions of VCR have this key; make each key unique \(record a\)"):
        FORMS["vcr"][1](groups)
    assert not path.exists()
    odd = replace(deciding.record(0), choices=(replace(deciding.record(0).choices[0], rationales=()),))
    with pytest.raises(DataError, match="4 answers and 0 rationales, but VCR's leaderboard needs 4 of each"):
        Leaderboard(deciding.TOKENS).queries(odd)


def test_the_verb_writes_what_the_function_does(store: Store, captioner: ModelFolder, tmp_path: Path) -> None:
    words = f"--model {captioner.folder} --data {store.folder} --beams 2 --max-words 4 --out {tmp_path / 'cli.json'}"
    done = CliRunner().invoke(app, ["submit", *words.split(), "--format=coco"], catch_exceptions=False)
    assert done.stdout.startswith(f"{tmp_path / 'cli.json'}: caption of 3 images of 'test', in the format coco")
    usual = find_recipe("unified-vlp/small/caption", SETTINGS).decoding
    submit(captioner, store, "test", "coco", tmp_path / "own.json", chosen_decoding(usual, 1, beams=2, max_words=4))
    assert (tmp_path / "cli.json").read_bytes() == (tmp_path / "own.json").read_bytes()
