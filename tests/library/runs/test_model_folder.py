"""A model folder is what was written, or is refused with the file that is hurt."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import torch

from diptych.core import FeatureContract
from diptych.data.store.tokens import Tokens
from diptych.runs.folder import Architecture, ModelFolder, damaged_files, open_model
from diptych.runtime.configs import derive
from diptych.runtime.errors import CheckpointError, DiptychError, RecipeError
from diptych.runtime.files import checksum
from diptych.runtime.weight_files import read_weights, write_weights
from diptych.systems import find_recipe
from tests.support.toy import config

CONTRACT = FeatureContract("given", "", feature_size=6, class_names=("a", "b", "c", "d"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokens = Tokens.train(["a dog and a cat"] * 9, 40)
    resolved = derive(config(), vocabulary=tokens.vocabulary)
    architecture = Architecture(system="unified-vlp", config=resolved, heads=("word",))
    recipe = find_recipe("unified-vlp/small/caption")
    made = ModelFolder(
        tmp_path / "model", architecture.build(), architecture, tokens, CONTRACT, recipe, validation={"CIDEr": 61.9}
    )
    return made.save(tmp_path / "model").folder


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o007, 0o660), (0o077, 0o600)])
def test_weights_have_the_permissions_of_other_new_files(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_weights({"a": torch.ones(2)}, tmp_path / "a.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.safetensors").stat().st_mode) == mode
    assert read_weights(tmp_path / "a.safetensors")["a"].tolist() == [1, 1]


def test_all_files_of_a_model_can_be_read_by_who_can_read_one(folder: Path) -> None:
    assert len({stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}) == 1


def test_a_flipped_bit_of_the_weights_is_seen(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = path.read_bytes()
    assert damaged_files(folder) == []
    for at in range(9, len(content), len(content) // 25):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        with pytest.raises(CheckpointError, match=r"model.safetensors has changed since it was written.*as a whole"):
            open_model(folder)
    path.write_bytes(content)
    assert open_model(folder).contract == CONTRACT


@pytest.mark.parametrize("name", ["recipe.json", "tokenizer.json", "features.json", "config.json", "weights.json"])
def test_each_file_is_named_where_it_is_hurt_or_gone(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-2])
    if name != "weights.json":
        assert [line for line in damaged_files(folder) if name in line]
    with pytest.raises(DiptychError, match=name):
        open_model(folder)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        open_model(folder)


@pytest.mark.parametrize("name", ["recipe.json", "config.json", "features.json", "tokenizer.json", "validation.json"])
def test_what_still_makes_sense_is_seen_too(folder: Path, name: str) -> None:
    """As a dropout of 0.3 in place of 0.1 does; here one more line feed."""
    with (folder / name).open("a") as file:
        file.write("\n")
    with pytest.raises(CheckpointError, match=rf"{name}.* (has changed since it was written|is not the tokeniser)"):
        open_model(folder)


@pytest.mark.parametrize("name", ["../away.json", "/dev/null", "a" * 5000, "\0"])
def test_checksums_name_files_of_the_folder_alone(folder: Path, name: str) -> None:
    checks = json.loads((folder / "weights.json").read_text())
    (folder / "weights.json").write_text(json.dumps(checks | {name: 0}))
    with pytest.raises(CheckpointError, match=r"weights\.json is damaged"):
        open_model(folder)


def test_a_folder_of_before_is_said_to_be_one(folder: Path) -> None:
    (folder / "weights.json").unlink()
    with pytest.raises(CheckpointError, match=r"no weights.json: if an older version.* make it again .*a new folder"):
        open_model(folder)
    assert "older version" in damaged_files(folder)[0]


@pytest.mark.parametrize("values", ['["CIDEr"]', '{"CIDEr": "high"}', "0", '{"CIDEr": NaN}', f'{{"x": {10**400}}}'])
def test_scores_of_the_best_validation_go_with_the_weights(folder: Path, values: str) -> None:
    assert open_model(folder).validation == {"CIDEr": 61.9}
    written(folder, "validation.json", values)
    with pytest.raises(CheckpointError, match=r"validation.json is damaged \(expected a number for each score\)"):
        open_model(folder)


def written(folder: Path, name: str, content: str) -> None:
    """With the checksum that it has: its maker may say what they like."""
    (folder / name).write_text(content)
    checks = json.loads((folder / "weights.json").read_text())
    (folder / "weights.json").write_text(json.dumps(checks | {name: checksum(folder / name)}))


@pytest.mark.parametrize("values", ['"yes"', '["<unk>", 5]', '["<unk>"]', "{}", '["<unk>", "\\ud800"]'])
def test_answers_are_texts(folder: Path, values: str) -> None:
    written(folder, "answers.json", values)
    with pytest.raises(CheckpointError, match=r"answers.json is not a list of answers"):
        open_model(folder)


def test_answers_are_as_many_as_the_model_gives(folder: Path) -> None:
    written(folder, "answers.json", '["<unk>", "yes", "no"]')
    with pytest.raises(
        CheckpointError, match=r"answers.json has 3 answers, but the model has 7; copy the model folder"
    ):
        open_model(folder)


FEATURES = [
    [], {"extractor": 5, "weights": "", "feature_size": 6}, {"weights": ""},
    {"extractor": "given", "weights": "", "feature_size": -1},
    {"extractor": "given", "weights": "", "feature_size": "6"},
    {"extractor": "given", "weights": "", "feature_size": 6, "class_names": [1]},
    {"extractor": "given", "weights": "", "feature_size": 6, "class_names": None},
    {"extractor": "given", "weights": "", "feature_size": 6, "class_names": ["\ud800"]},
    {"extractor": "given", "weights": "", "feature_size": 6, "more": 1},
]  # fmt: skip


@pytest.mark.parametrize("values", FEATURES)
def test_features_json_is_held_against_its_types(folder: Path, values: object) -> None:
    (folder / "features.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"features.json is damaged.*copy the model folder again"):
        open_model(folder)


@pytest.mark.parametrize(("key", "value"), [("layers", 10**7), ("width", 0), ("heads", "x"), ("classes", -1)])
def test_config_json_is_held_against_its_bounds(folder: Path, key: str, value: object) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text())
    values["config"][key] = value
    path.write_text(json.dumps(values))
    with pytest.raises(RecipeError, match=rf"config.json: config.*{key}"):
        open_model(folder)


@pytest.mark.parametrize(("key", "value"), [("layers", 1000), ("width", 99_996), ("ffn", 100_000)])
def test_a_model_larger_than_its_weights_takes_no_memory(folder: Path, key: str, value: int) -> None:
    values = json.loads((folder / "config.json").read_text())
    values["config"][key] = value
    written(folder, "config.json", json.dumps(values))
    with pytest.raises(
        CheckpointError, match=r"config.json describes a model of at least .* MiB, but model.safetensors"
    ):
        open_model(folder)


REFUSED = [
    "model.width=0", "model.heads=0", "model.layers=-1", "model.layers=10000000", "model.dropout=2",
    "model.dropout=NaN",
    "model.max_regions=0", "model.ffn=0", "model.norm_eps=0", "model.init_std=Infinity", "optimizer.lr=Infinity",
    "optimizer.weight_decay=NaN", "training.seed=-1", "decoding.length_bonus=NaN", "model.positions=-5",
]  # fmt: skip


@pytest.mark.parametrize("setting", REFUSED)
def test_a_number_out_of_bounds_is_refused_by_its_key(setting: str) -> None:
    with pytest.raises(RecipeError, match=setting.partition("=")[0]):
        find_recipe("unified-vlp/small/caption", (setting,))
