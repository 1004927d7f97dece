"""A model goes to the hub with its card and comes back the same; the hub is a stub of its API (support/hub.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

import diptych
from diptych.api.model import Model
from diptych.cli import app
from diptych.data.leakage import SeenImages
from diptych.inference import hub
from diptych.inference.card import Publisher, model_card
from diptych.inference.predictor import Predictor
from diptych.runs.folder import open_model
from diptych.runtime.configs import derive
from diptych.runtime.errors import CheckpointError, DataError, DiptychError, RecipeError
from diptych.systems import find_recipe
from tests.support.hub import TOKEN, Hub, running_hub
from tests.support.service import make_model, picture

# hub 2.4 uploads files by an argument of httpx that is deprecated
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
ADDRESSES = "/{repo_id}/resolve/{revision}/{filename}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return make_model(tmp_path_factory.mktemp("hub"))


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.address + ADDRESSES)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield running


def push(model: Predictor, *options: object) -> None:
    app(["push", str(model.folder.folder), "me/kites", *map(str, options)], standalone_mode=False)


def test_what_is_pushed_is_loaded_by_its_name(model: Predictor, stub: Hub, tmp_path: Path, capsys) -> None:
    push(model, "--license", "cc-by-4.0")
    assert capsys.readouterr().out.strip() == f"{stub.address}/me/kites"
    there = stub.repositories["me/kites"]
    for name, path in hub.files_of(model.folder).items():
        assert there[name] == path.read_bytes(), name
    assert b"license: cc-by-4.0" in there["README.md"]
    (shown := tmp_path / "a.png").write_bytes(picture())
    loaded = diptych.load("me/kites")
    assert loaded.caption(shown) == Model(model).caption(shown)
    stub.asked.clear()
    assert diptych.load("me/kites").caption(shown) == Model(model).caption(shown)
    assert not [asked for asked in stub.asked if asked.startswith("GET") and "resolve" in asked], "fetched twice"


def test_a_model_without_answers_takes_the_old_ones_away_and_leaves_files_of_others(
    model: Predictor, stub: Hub, tmp_path: Path
) -> None:
    push(model)
    stub.repositories["me/kites"]["picture.png"] = b"a picture for the card"
    folder = open_model(model.folder.folder)
    plain = type(folder)(**{**vars(folder), "answers": None}).save(tmp_path / "plain")
    app(["push", str(plain.folder), "me/kites"], standalone_mode=False)
    there = stub.repositories["me/kites"]
    assert "answers.json" not in there
    assert there["picture.png"] == b"a picture for the card"
    assert diptych.load("me/kites").predictor.folder.answers is None


def test_a_revision_is_loaded_by_its_tag(model: Predictor, stub: Hub, tmp_path: Path) -> None:
    opened = Model(model)
    assert opened.push_to_hub("me/kites", license="cc-by-4.0", private=True) == f"{stub.address}/me/kites"
    assert stub.private == {"me/kites"}
    stub.tagged["me/kites", "v1"] = dict(stub.repositories["me/kites"])
    folder = open_model(model.folder.folder)
    plain = type(folder)(**{**vars(folder), "answers": None}).save(tmp_path / "plain")
    dry = Model(Predictor(plain)).push_to_hub("me/kites", dry_run=tmp_path / "dry")
    assert {path.name for path in Path(dry).iterdir()} >= {"README.md", "config.json", "model.safetensors"}
    assert "answers.json" in stub.repositories["me/kites"], "nothing was pushed"
    Model(Predictor(plain)).push_to_hub("me/kites")
    first, newest = diptych.load("me/kites", revision="v1"), diptych.load("me/kites")
    assert (first.predictor.folder.answers, newest.predictor.folder.answers) == (folder.answers, None)
    by_commit = diptych.load("me/kites", revision=stub.commit("me/kites", "v1"))
    assert by_commit.predictor.folder.folder != newest.predictor.folder.folder


@pytest.mark.parametrize(
    "words",
    ["push me/kites me/others", "export me/kites --out OUT/programs", "check OUT --model me/kites",
     "compare me/kites me/kites --data OUT", "compare me/kites me/kites --data OUT --revision main",
     "caption OUT --model me/kites", "encode OUT --out OUT/v.npy --model me/kites"],
)  # fmt: skip
def test_verbs_open_the_revision_that_is_named(model: Predictor, stub: Hub, tmp_path: Path, words: str) -> None:
    push(model)
    (tmp_path / "a.png").write_bytes(picture())
    with pytest.raises(CheckpointError, match=r"^me/kites on the hub lacks this revision; pass one of .*/commits"):
        app([*words.replace("OUT", str(tmp_path)).split(), "--revision", "v9"], standalone_mode=False)


def test_two_models_have_two_revisions(stub: Hub, tmp_path: Path) -> None:
    words = f"compare me/kites me/kites --data {tmp_path} --revision a --revision b --revision c"
    with pytest.raises(RecipeError, match="found --revision 3 times"):
        app(words.split(), standalone_mode=False)
    assert not stub.asked


def test_a_private_one_wants_the_token(model: Predictor, stub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    push(model, "--private")
    assert stub.private == {"me/kites"}
    monkeypatch.setenv("HF_TOKEN", "hf_another")
    with pytest.raises(CheckpointError, match=r"me/kites is not on the hub, or not visible .* set HF_TOKEN"):
        diptych.load("me/kites")


def test_without_a_token_nothing_is_asked(model: Predictor, stub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(RecipeError, match="needs a write token: set HF_TOKEN"):
        push(model)
    assert not stub.asked


@pytest.mark.parametrize(("status", "said"), [(401, "HF_TOKEN is invalid"), (403, "lacks permission"), (413, "(413)")])
def test_what_the_hub_refuses_is_one_sentence(model: Predictor, stub: Hub, status: int, said: str) -> None:
    stub.refuse = status
    with pytest.raises(CheckpointError, match=r"^me/kites .*") as refused:
        push(model)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_a_network_a_sentence_names_the_way_out(
    model: Predictor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)  # between its five attempts
    with pytest.raises(
        CheckpointError,
        match=r"could not be reached on the hub .*; without a network, copy the model folder .* no folder me/kites",
    ):
        diptych.load("me/kites")
    with pytest.raises(CheckpointError, match="without a network, --dry-run writes the folder"):
        push(model)


def test_a_model_of_another_kind_is_told_before_it_is_fetched(stub: Hub) -> None:
    stub.repositories["you/bert"] = {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"x" * 1000}
    with pytest.raises(
        CheckpointError, match=r"you/bert on the hub is not a model of Diptych .* names no known system"
    ):
        diptych.load("you/bert")
    assert not [asked for asked in stub.asked if "safetensors" in asked]
    stub.repositories["you/empty"] = {}
    with pytest.raises(
        CheckpointError, match=r"you/empty on the hub is not a model of Diptych \(it has no config.json\)"
    ):
        diptych.load("you/empty")


def test_a_damaged_folder_is_not_pushed(stub: Hub, tmp_path: Path) -> None:
    folder = make_model(tmp_path).folder
    (folder.folder / "answers.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"answers\.json has changed since it was written .*; nothing was pushed"):
        hub.push(folder, "me/kites", "")
    assert not stub.asked


@pytest.mark.parametrize("name", ["kites", "me/", "me/a b", "../kites", "me/kites/more"])
def test_a_name_that_cannot_be(model: Predictor, name: str) -> None:
    with pytest.raises(RecipeError, match=r"invalid repository name .*; expected user/name"):
        app(["push", str(model.folder.folder), name], standalone_mode=False)


def test_fingerprints_of_training_images_stay_here(
    model: Predictor, stub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever has an image could find out with them whether the model was trained on it."""
    seen = SeenImages(np.array([3, 7], np.uint64), np.ones((2, 4), np.uint64))
    Predictor(replace(model.folder, seen=seen).save(tmp_path / "model"))
    stub.repositories["me/kites"] = {"seen.safetensors": b"of an earlier model"}
    app(["push", str(tmp_path / "model"), "me/kites"], standalone_mode=False)
    there = stub.repositories["me/kites"]
    assert "seen.safetensors" not in there
    assert b"(seen.safetensors) are not published: the training images of this model are unknown." in there["README.md"]
    assert diptych.load("me/kites").predictor.folder.seen is None
    assert diptych.load(tmp_path / "model").predictor.folder.seen is not None
    given = ["push", str(tmp_path / "model"), "me/kites", "--dry-run", "--out", str(tmp_path / "out")]
    capsys.readouterr()
    app(given, standalone_mode=False)
    assert "; left out: seen.safetensors, the fingerprints of the training images" in capsys.readouterr().out
    assert not (tmp_path / "out" / "seen.safetensors").exists()


def test_the_card_asks_what_the_training_data_asks(model: Predictor, tmp_path: Path) -> None:
    examples = ("which colour does the ball have", "where is this")
    learnt = replace(model.folder, architecture=derive(model.folder.architecture, heads=("answer",), examples=examples),
                     recipe=find_recipe("unified-vlp/small/vqa", []))  # fmt: skip
    card = model_card(learnt, "me/balls", Publisher())
    assert 'print(model.ask("photo.jpg", "which colour does the ball have"))' in card
    assert "kite" not in card


def test_a_dry_run_writes_what_would_be_pushed(model: Predictor, stub: Hub, tmp_path: Path) -> None:
    push(model, "--dry-run", "--out", tmp_path / "kites")
    assert not stub.asked
    written = {p.relative_to(tmp_path / "kites").as_posix() for p in (tmp_path / "kites").rglob("*") if p.is_file()}
    push(model)
    assert written == stub.repositories["me/kites"].keys() - {".gitattributes"} | {".diptych"}
    open_model(tmp_path / "kites")
    push(model, "--dry-run", "--out", tmp_path / "kites")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(RecipeError, match=r"mine is not empty .*, expected an empty folder or one of kind card"):
        push(model, "--dry-run", "--out", tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_the_card_has_the_facts_of_the_folder_and_of_its_publisher(model: Predictor, tmp_path: Path) -> None:
    scores = tmp_path / "scores.json"
    saved = {
        "task": "caption", "pictures": 60, "items": 60, "coverage": 1.0, "notes": ["blind: one caption | for all"],
        "scores": {"CIDEr": {"value": 17.94, "interval": [13.5, 22.8], "blind": 2.5, "ceiling": 141.3}},
        "of": {
            "weights": model.folder.weights_checksum, "data": "/home/me/kites.jsonl", "split": "test",
            "precision": "bf16",
        },
    }  # fmt: skip
    scores.write_text(json.dumps(saved))
    card = model_card(
        model.folder, "me/kites", Publisher("cc-by-4.0", "Kites | of\nthe beach", "by permission", (scores,))
    )
    for wanted in (
        "license: cc-by-4.0",
        "pipeline_tag: image-to-text",
        "[arXiv 1909.11059](https://arxiv.org/abs/1909.11059)",
        'model = diptych.load("me/kites")',
        "trained by the recipe `unified-vlp/small/caption`",
        "| data | Kites \\| of the beach |",
        "| licence of the data | by permission |",
        "| CIDEr | 17.9 | 13.5 to 22.8 | 2.5 | 141.3 |",
        "60 of 60 images, split `test` of `kites.jsonl`, computed in bf16",
        "It was trained only on drawn scenes",
        "one of 7 answers",
    ):
        assert wanted in card, wanted
    assert "/home/me" not in card
    assert "It is a control" not in card
    assert model.folder.recipe is not None
    blind = replace(model.folder, recipe=model.folder.recipe.override(["data.images=false"]))
    assert "It is a control model: it was trained without images" in model_card(blind, "me/kites", Publisher())
    assert "licence of the weights | not stated" in model_card(model.folder, "me/kites", Publisher())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"of": {"weights": 1, "data": "d", "split": "s", "precision": "fp32"}}, "computed with other weights"),
        ({"of": {}}, "is not the output of .* \\(weights: "),
        ({"scores": 3}, "is not the output of .*"),
        ({"scores": {"CIDEr": {"value": "much"}}}, r"scores\.0\.value"),
        ({"items": "all"}, "items: Input should be a valid integer"),
    ],
)
def test_scores_of_another_model_are_refused(model: Predictor, tmp_path: Path, change, said: str) -> None:
    saved = {"task": "caption", "pictures": 1, "items": 1, "coverage": 1.0, "notes": [], "scores": {}}
    saved["of"] = {"weights": model.folder.weights_checksum, "data": "d", "split": "s", "precision": "fp32"}
    (tmp_path / "s.json").write_text(json.dumps(saved | change))
    with pytest.raises(DataError, match=said):
        model_card(model.folder, "me/kites", Publisher(scores=(tmp_path / "s.json",)))


def test_names_of_others_are_no_markup_in_a_card(model: Predictor, tmp_path: Path) -> None:
    evil = "x`<img src=//e.test>`![x](//e.test/track)|\n# Heading\x1b[2J"
    saved = {
        "task": "caption", "pictures": 1, "items": 1, "coverage": 1.0, "notes": [evil], "scores": {evil: {"value": 1}},
        "of": {"weights": model.folder.weights_checksum, "data": evil, "split": evil, "precision": evil},
    }  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps(saved))
    assert model.folder.recipe is not None
    recipe = derive(model.folder.recipe, name=evil, data={"split": evil, "validation": evil})
    contract = replace(model.folder.contract, extractor=evil, selection=evil)
    folder = replace(model.folder, recipe=recipe, contract=contract, validation={evil: 1.0})
    for publisher in (Publisher(scores=(tmp_path / "s.json",)), Publisher()):
        card = model_card(folder, "me/kites", publisher)
        assert "x'&lt;img" in card
        for markup in ("<img", "![", "\n# Heading", "\x1b", "x`"):
            assert markup not in card


def test_paths_of_this_machine_are_named_before_the_world_reads_them(model: Predictor, tmp_path: Path, capsys) -> None:
    assert model.folder.recipe is not None
    recipe = model.folder.recipe.model_copy(update={"init": "/home/me/secret/bert.bin"})
    folder = type(model.folder)(**{**vars(model.folder), "recipe": recipe}).save(tmp_path / "model")
    app(["push", str(folder.folder), "me/kites", "--dry-run", "--out", str(tmp_path / "out")], standalone_mode=False)
    assert "which will be public: init=/home/me/secret/bert.bin" in capsys.readouterr().err


def test_a_link_to_a_private_file_is_not_pushed(model: Predictor, stub: Hub, tmp_path: Path) -> None:
    folder = model.folder.save(tmp_path / "model").folder
    (tmp_path / "key").write_text("private")
    assert (folder / "detector").is_dir()
    (folder / "detector" / "notes.txt").symlink_to(tmp_path / "key")
    with pytest.raises(DiptychError, match="is a link that leads out of"):
        app(["push", str(folder), "me/kites"], standalone_mode=False)
    assert b"private" not in stub.repositories.get("me/kites", {}).values()
