"""What was made by a version with a fault is named, with the command that makes it again; what is made now is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from typer.testing import CliRunner

from diptych import __version__
from diptych.cli import app
from diptych.core import FeatureContract, Object
from diptych.data.faults import FAULTS, known_faults
from diptych.data.store import shards
from diptych.data.store.store import Store, StoreWriter
from diptych.data.store.tokens import Tokens
from diptych.runs.folder import Architecture, ModelFolder, open_model
from diptych.runtime.configs import derive
from diptych.tasks.scores import Score, Scores
from tests.loading.conftest import CONTRACT, record
from tests.toy import config

TURNED = "rotated TIFF images"
ANSWERS = "answers with capital letters"
SCORED = "right answers with capital letters"
WORDS = "the vocabulary drops accents"
RECALL = "recall counted identical captions"
MADE_BEFORE = Path(__file__).parent.parent / "data" / "made_at_4eb52ed"


def without_version(path: Path) -> None:
    """Write a JSON file as versions before 0.1 wrote it."""
    values = json.loads(path.read_text())
    assert values.pop("diptych") == __version__
    if "check" in values:
        values["check"] = shards.index_check(values)
    path.write_text(json.dumps(values, indent=1))


def store(folder: Path, image: str, *objects: Object) -> Path:
    with StoreWriter(folder, CONTRACT) as writer:
        writer.add(replace(record(1), image=Path(image), objects=objects))
    return folder


def stripping(tokens: Tokens, folder: Path) -> Path:
    """Write a learnt vocabulary with the parts that versions before 0.1 gave it."""
    tokenizer = Tokenizer.from_str(tokens.to_json())
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def named(path: Path, *whats: str) -> None:
    lines = known_faults(path)
    assert len(lines) == len(whats), lines
    for what in whats:
        (line,) = (line for line in lines if f": {what}" in line)
        assert "; run diptych " in line


def test_a_store_of_tiffs_with_boxes(tmp_path: Path) -> None:
    thing = Object("dog", (0.1, 0.1, 0.5, 0.5))
    for name, image, objects, whats in (
        ("boxed", "/p/1.TIFF", (thing,), (TURNED,)), ("bare", "/p/1.tif", (), (TURNED,)),
        ("png", "/p/1.png", (thing,), ()),
    ):  # fmt: skip
        made = store(tmp_path / name, image, *objects)
        assert json.loads((made / "store.json").read_text())["diptych"] == __version__
        named(made)
        without_version(made / "store.json")
        assert len(Store(made)) == 1
        named(made, *whats)
    result = CliRunner().invoke(app, ["check", str(tmp_path / "boxed"), "--json"])
    (finding,) = (one for one in json.loads(result.stdout)["findings"] if one["kind"] == "known fault")
    assert (finding["severity"], finding["count"]) == ("warning", 1)
    with StoreWriter(tmp_path / "boxed", CONTRACT) as writer:  # goes on with what an older version began
        writer.add(record(2))
    named(tmp_path / "boxed", TURNED)


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., Path]:
    def make(tokens: Tokens, version: str | None) -> Path:
        resolved = derive(config(), vocabulary=tokens.vocabulary)
        architecture = Architecture(system="unified-vlp", config=resolved, heads=("word",), diptych=version)
        contract = FeatureContract("given", "", feature_size=6, class_names=("a", "b", "c", "d"))
        folder = tmp_path / "run" / "model"
        return ModelFolder(folder, architecture.build(), architecture, tokens, contract).save(folder).folder

    return make


def test_models_of_vqa_and_vocabularies(make_model: Callable[..., Path], tmp_path: Path) -> None:
    learnt = Tokens.train(["a dog and a cat"] * 9, 40)
    learnt.save(tmp_path)
    named(tmp_path)
    for version, tokens, answers, whats in (
        (__version__, learnt, True, ()),
        (None, learnt, False, ()),
        (None, learnt, True, (ANSWERS,)),
        (__version__, Tokens.load(stripping(learnt, tmp_path / "old")), False, (WORDS,)),
        (None, Tokens.load(tmp_path / "old"), True, (ANSWERS, WORDS)),
    ):
        model = make_model(tokens, version)
        assert open_model(model).architecture.diptych == version
        if answers:
            (model / "answers.json").write_text("{}")
        named(model, *whats)
        named(model.parent, *whats)  # of a run
        (model / "answers.json").unlink(missing_ok=True)
    named(tmp_path / "old", WORDS)
    shown = CliRunner().invoke(app, ["check", str(tmp_path / "old")])
    assert (shown.exit_code, WORDS in shown.stdout) == (0, True)


def test_berts_own_vocabulary_is_none_that_diptych_learnt(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "##s"]))
    Tokens.from_vocabulary(tmp_path / "vocab.txt", lowercase=True).save(tmp_path)
    named(tmp_path)


@pytest.mark.parametrize(("task", "whats"), [("vqa", (SCORED,)), ("retrieval", (RECALL,)), ("caption", ())])
def test_files_of_scores(task: str, whats: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    scores = Scores(task, (Score("accuracy", 50.0),), 10, 10)
    file.write_text(json.dumps(scores.to_json()))
    assert Scores.from_json(json.loads(file.read_text())) == scores
    named(file)
    without_version(file)
    assert Scores.from_json(json.loads(file.read_text())) == scores
    named(file, *whats)
    named(tmp_path, *whats)  # of a run's folder
    shown = CliRunner().invoke(app, ["check", str(file)])
    assert (shown.exit_code, shown.stdout.count("; run diptych ")) == (0, len(whats))
    assert ("no known fault" in shown.stdout) == (not whats)


def test_what_an_earlier_version_made_is_named() -> None:
    named(MADE_BEFORE / "store")
    assert {line.partition(": ")[2][:30] for line in known_faults(MADE_BEFORE / "vqa")} == {
        one.what[:30] for one in FAULTS if one.what.startswith((ANSWERS, WORDS))
    }


def test_a_later_version_with_the_fault_mended_is_not_named(tmp_path: Path) -> None:
    for version, count in (("0.0.9", 1), ("0.1.0", 0), ("0.1.0.dev3", 0), ("0.10.0", 0)):
        (tmp_path / "scores.json").write_text(json.dumps({"task": "vqa", "scores": {}, "diptych": version}))
        assert len(known_faults(tmp_path / "scores.json")) == count
    (tmp_path / "scores.json").write_text(json.dumps({"task": "vqa", "scores": {}, "diptych": 5}))
    assert not known_faults(tmp_path / "scores.json")


def test_what_is_damaged_is_left_to_the_other_checks(tmp_path: Path) -> None:
    made = store(tmp_path / "store", "/p/1.tif", Object("dog", (0.1, 0.1, 0.5, 0.5)))
    without_version(made / "store.json")
    (shard,) = made.glob("*.safetensors")
    shard.write_bytes(shard.read_bytes()[:-40])
    for content in ("{", "[]", "{}", '{"normalizer": {"type": "BertNormalizer"}}', '{"normalizer": null, "model": 5}'):
        (tmp_path / "tokenizer.json").write_text(content)
        assert not known_faults(tmp_path)
