"""What goes wrong at the command line: a message with the way out, no traceback, and nothing half done."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from diptych import cli
from diptych.systems import RECIPES
from tests.journeys.conftest import Result, tiny
from tests.support.service import make_model

PRETRAIN = ["pretrain", "unified-vlp/small/pretrain"]
IMPORT = "import unified-vlp FILE --out OUT --vocab VOCAB"


def text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content) and None


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"a": Path("x")}))


def half_a_checkpoint(path: Path) -> None:
    torch.save({"bert.embeddings.word_embeddings.weight": torch.zeros(5, 64)}, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_vl_bert(path: Path) -> None:
    torch.save({"state_dict": {"module.vlbert.word_embeddings.weight": torch.zeros(5, 64)}}, path)


def nothing(path: Path) -> None:
    pass


def pictured(path: Path) -> None:
    path.mkdir()
    Image.new("RGB", (40, 40)).save(path / "a.png")


# name, what lies at FILE, the command (words in capitals stand for paths), exit code, what the message holds
CASES: list[tuple[str, Callable[[Path], None], str, int, str]] = [
    ("no such verb", nothing, "captoin", 2, "No such command 'captoin'; did you mean caption or pretrain?"),
    ("no such option", nothing, "PRETRAIN --datta x", 2, "No such option"),
    ("no such recipe", nothing, "pretrain unified-vlp/smal --data WORLD --out OUT", 2, "did you mean"),
    ("unknown key", nothing, "PRETRAIN --data WORLD --out OUT --set optimizer.lrr=1", 2, "did you mean lr"),
    ("another type", nothing, "PRETRAIN --data WORLD --out OUT --set training.steps=many", 2, "training.steps"),
    ("a task", nothing, "pretrain unified-vlp/small/vqa --data WORLD --out OUT", 2, "diptych finetune vqa --recipe"),
    (
        "a task set",
        nothing,
        "PRETRAIN --data WORLD --out OUT --set task=vqa",
        2,
        "does not pre-train; run: diptych finetune vqa",
    ),
    ("demo of no system", nothing, "demo --out OUT --system vlbert", 2, "did you mean vl-bert"),
    ("no such store", nothing, "PRETRAIN --data FILE --out OUT", 1, "diptych extract"),
    ("no such split", nothing, "PRETRAIN --data WORLD --out OUT --set data.split=webb", 1, "'webb'; it has train (40)"),
    ("no such model", nothing, "caption a.png --model FILE", 1, "no model at"),
    ("no such data", nothing, "extract FILE --out OUT --detector ground-truth", 1, "nothing at"),
    (
        "data of another form",
        text("dogs"),
        "extract FILE --out OUT --detector ground-truth",
        1,
        "is not data",
    ),
    ("no such detector", nothing, "extract MINE --out OUT --detector FILE", 2, "no detector"),
    (
        "ground truth of none",
        nothing,
        "extract MINE --out OUT --detector ground-truth",
        1,
        "no record has `objects`",
    ),
    ("a store in its data", pictured, "extract FILE --out FILE --detector ground-truth", 2, "is an input of this"),
    ("of a model alone", nothing, "score FILE --references FILE --split val", 2, "No such option: --split"),
    (
        "of results alone",
        nothing,
        "evaluate --model FILE --data WORLD --allow-missing",
        2,
        "No such option: --allow-missing",
    ),
    ("not a model folder", lambda p: p.mkdir(), "caption a.png --model FILE", 1, "it has no config.json"),
    ("hub without a network", nothing, "caption a.png --model somebody/model", 1, "could not be reached on the hub"),
    ("missing checkpoint", nothing, "IMPORT", 1, "missing"),
    ("empty checkpoint", text(""), "IMPORT", 1, "is empty"),
    ("checkpoint cut in half", half_a_checkpoint, "IMPORT", 1, "cut short"),
    ("a pickle posing as weights", pickled, "IMPORT", 1, "would run its code"),
    ("another system's checkpoint", of_vl_bert, "IMPORT", 1, "VL-BERT"),
    ("no such system", nothing, "import unified-vpl FILE --out OUT --vocab VOCAB", 2, "did you mean unified-vlp"),
    (
        "no vocabulary",
        half_a_checkpoint,
        "import unified-vlp FILE --out OUT --vocab OUT",
        1,
        "not a readable vocabulary",
    ),
    ("weights without a vocabulary", nothing, "PRETRAIN --data WORLD --out OUT --init FILE", 2, "vocab.txt"),
]


@pytest.mark.parametrize(
    ("lies_there", "arguments", "code", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_message_says_what_is_wrong(
    lies_there: Callable[[Path], None], arguments: str, code: int, wanted: str, run: Callable[..., Result],
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lies_there(tmp_path / "file.bin")
    (tmp_path / "mine.jsonl").write_text(json.dumps({"image": "a.png", "captions": ["a dog"]}) + "\n")
    (tmp_path / "a.png").touch()
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    places = {"FILE": tmp_path / "file.bin", "OUT": tmp_path / "out", "WORLD": world, "MINE": tmp_path / "mine.jsonl",
              "VOCAB": tmp_path / "vocab.txt"}  # fmt: skip
    words = arguments.replace("PRETRAIN", " ".join(PRETRAIN)).replace("IMPORT", IMPORT).split()
    result = run(*(places.get(word, word) for word in words))
    assert (result.code, wanted in " ".join(result.error.split())) == (code, True), result.error
    assert "Traceback" not in result.error
    assert not list((tmp_path / "out").rglob("*.safetensors"))
    assert not list(tmp_path.rglob("*partial*"))


def test_debug_shows_where(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["diptych", "caption", "a.png", "--model", "nowhere", "--debug"])
    with pytest.raises(Exception, match="no model at nowhere"):
        cli.main()


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_checkpoint(
    run: Callable[..., Result], world: Path, tmp_path: Path
) -> None:
    wild = tiny(
        **{"data.split": "train", "optimizer.lr": 1e30, "optimizer.clip": "null", "training.checkpoint_every": 1}
    )
    result = run(*PRETRAIN, "--data", world, "--out", tmp_path, *wild)
    assert result.code == 1
    assert "not finite" in result.error
    assert "optimizer.lr" in result.error or "learning rate" in result.error
    assert not (tmp_path / "model").exists()


def test_an_empty_data_set(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("")
    result = run("extract", tmp_path / "mine.jsonl", "--out", tmp_path / "store", "--detector", "ground-truth")
    assert result.code == 1
    assert "no record" in result.error or "nothing" in result.error
    assert not (tmp_path / "store" / "store.json").exists()


def test_a_model_cut_short_is_named(run: Callable[..., Result], world: Path, tmp_path: Path) -> None:
    run_folder = tmp_path / "run"
    cli_arguments = [
        *PRETRAIN,
        "--data",
        world,
        "--out",
        run_folder,
        *tiny(**{"data.split": "train", "training.steps": 2}),
    ]
    assert run(*cli_arguments).code == 0
    weights = run_folder / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    result = run("evaluate", "--model", run_folder, "--data", world)
    assert result.code == 1
    assert "model.safetensors has changed since" in result.error


def test_a_store_is_not_filled_on_after_its_data_changed(run: Callable[..., Result], tmp_path: Path) -> None:
    """Its old words and splits would be trained on; other files of data and moved pictures are welcome."""

    def manifest(name: str, caption: str = "a dog", split: str = "train") -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        for colour in ("red", "blue"):
            Image.new("RGB", (40, 40), colour).save(tmp_path / name / f"{colour}.png")
        things = [{"kind": "dog", "box": [4, 4, 20, 20]}]
        lines = [{"image": f"{colour}.png", "captions": [caption], "split": split, "objects": things}
                 for colour in ("red", "blue")]  # fmt: skip
        path = tmp_path / name / "mine.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path

    def extracted(path: Path) -> Result:
        return run("extract", path, "--out", tmp_path / "store", "--detector", "ground-truth")

    assert extracted(manifest("a")).code == 0
    for changed in ({"caption": "a cat"}, {"split": "test"}):
        refused = extracted(manifest("a", **changed))
        assert (refused.code, "had other texts or another split for 'red.png'" in refused.error) == (1, True), (
            refused.error
        )
    manifest("a")
    shutil.move(tmp_path / "a", tmp_path / "elsewhere")
    again = extracted(tmp_path / "elsewhere/mine.jsonl")
    assert (again.code, "2 were there already" in again.out) == (0, True), again.error


def test_a_task_that_a_system_has_no_recipe_for_is_told_as_that(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_model(tmp_path / "made").folder.folder
    monkeypatch.delitem(RECIPES, "unified-vlp/small/caption")
    result = run("finetune", "caption", "--data", "none", "--out", tmp_path / "out", "--model", made)
    assert result.code == 2
    assert "is a model of unified-vlp, which has no small recipe for caption" in result.error
    assert "use a model of tden, xgpt" in result.error


def test_a_model_folder_is_checked_in_json_too(run: Callable[..., Result], tmp_path: Path) -> None:
    made = make_model(tmp_path / "made").folder.folder
    assert json.loads(run("check", made, "--json").out) == {"ok": True, "findings": []}
    (made / "answers.json").unlink()
    hurt = run("check", made, "--json")
    assert (hurt.code, json.loads(hurt.out)["ok"]) == (1, False)
    refused = run("check", made, "--images", tmp_path)
    assert (refused.code, "leave out --model and --images" in refused.error) == (2, True)
