"""A checkpoint of VL-BERT's code becomes a model folder, learns on a store of any detector, and is asked."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from diptych.core import FeatureContract, Question, Record, Vocabulary
from diptych.data.store.store import Store, StoreWriter
from diptych.data.store.tokens import SPECIAL
from diptych.runs.evaluation.evaluate import score_model
from diptych.runs.folder import ModelFolder, open_model
from diptych.runs.importing import import_checkpoint
from diptych.runs.predict import predict
from diptych.runs.run import run
from diptych.runs.start import fit_to
from diptych.runtime.errors import DataError
from diptych.systems import find_recipe
from diptych.systems.vl_bert.model import VLBert, VLBertResolvedConfig
from tests.support import toy
from tests.support.official_names import under_their_names

QUIET = Console(quiet=True)
WORDS = ("a", "dog", "bird", "what", "is", "it", "?")
SHORT = ["training.batch=4", "training.steps=2", "training.precision=fp32", "training.validate_every=null"]
CONTRACT = FeatureContract("ours", "b" * 64, feature_size=6, class_names=tuple("abcd"))


@pytest.fixture
def imported(tmp_path: Path) -> ModelFolder:
    torch.manual_seed(0)
    config = VLBertResolvedConfig(
        vocabulary=Vocabulary(len(SPECIAL) + len(WORDS), 0, 1, 2, 3, 4),
        width=64,
        layers=1,
        heads=1,
        ffn=32,
        positions=40,
        coordinates=4,
        feature_size=6,
        classes=9,
        hidden_regions="official",
    )
    torch.save(under_their_names(VLBert(config, ("word", "region_class"))), tmp_path / "theirs.model")
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]))
    lines = import_checkpoint("vl-bert", tmp_path / "theirs.model", tmp_path / "imported", tmp_path / "vocab.txt")
    assert ", 0 missing" in lines[-1]
    return open_model(tmp_path / "imported")


def store_in(folder: Path, contract: FeatureContract = CONTRACT) -> Store:
    with StoreWriter(folder, contract) as writer:
        for number in range(8):
            asked = (Question(f"q{number}", "what is it ?", (WORDS[1 + number % 2],) * 10),)
            seen = toy.regions(2, number)
            assert seen.features is not None
            seen = replace(seen, features=seen.features.repeat(1, 2)[:, : contract.feature_size])
            split = "test" if number > 5 else "train"
            writer.add(Record(f"r{number}", split, captions=("a dog",), questions=asked, regions=seen))
    return Store(folder)


def test_the_words_are_read_as_the_released_model_has_them(imported: ModelFolder) -> None:
    assert imported.tokens.encode("A DOG") == imported.tokens.encode("a dog")


def test_it_learns_on_the_features_of_other_eyes_and_is_asked(imported: ModelFolder, tmp_path: Path) -> None:
    store = store_in(tmp_path / "store")
    recipe = fit_to(find_recipe("vl-bert/small/vqa", SHORT), imported)
    tuned = run(recipe, store, tmp_path / "vqa", imported, QUIET).model
    assert tuned.contract == store.contract
    assert {said["answer"] for said in predict(tuned, store, "test").predictions} <= {"dog", "bird"}
    with pytest.raises(DataError, match="extractor: 'ours', not 'theirs'"):
        tuned.accept(replace(store.contract, extractor="theirs"), store.folder)


def test_a_head_for_other_classes_starts_fresh(imported: ModelFolder, tmp_path: Path) -> None:
    told = Console(record=True, quiet=False, width=300)
    recipe = fit_to(find_recipe("vl-bert/small/pretrain", SHORT), imported)
    made = run(recipe, store_in(tmp_path / "store"), tmp_path / "run", imported, told).model
    assert made.architecture.config.classes == 4
    assert "its heads for other classes or answers get random weights: region_class" in told.export_text()


def test_features_of_another_size_are_refused(imported: ModelFolder, tmp_path: Path) -> None:
    store = store_in(tmp_path / "store", replace(CONTRACT, feature_size=7))
    recipe = fit_to(find_recipe("vl-bert/small/vqa", SHORT), imported)
    with pytest.raises(DataError, match=r"have 7 values each, but the imported model .* needs 6 .*--detector given"):
        run(recipe, store, tmp_path / "run", imported, QUIET)


def test_a_damaged_record_is_left_out_of_what_is_asked_and_said(imported: ModelFolder, tmp_path: Path) -> None:
    store = store_in(tmp_path / "store")
    tuned = run(fit_to(find_recipe("vl-bert/small/vqa", SHORT), imported), store, tmp_path / "vqa", imported, QUIET)
    shard = store.folder / "shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    features = store.record(6).regions.features.half().numpy().tobytes()  # type: ignore[union-attr]
    content[content.index(features)] ^= 1
    shard.write_bytes(content)
    said = predict(tuned.model, Store(store.folder), "test")
    assert [record.key for record in said.records] == ["r7"]
    assert said.damaged == ("r6",)
    _, scores = score_model(tuned.model, Store(store.folder), "test")
    assert "1 damaged records were left out: r6" in scores.notes
