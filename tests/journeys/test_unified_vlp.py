"""Train -> kill -> resume -> predict -> score, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import diptych as library
from diptych.data.store.store import Store
from tests.journeys.conftest import ENVIRONMENT, diptych, kill_at_its_first_checkpoint, tiny
from tests.support.logged import steps, weights

PRETRAIN = "unified-vlp/small/pretrain"


@pytest.fixture(scope="session")
def pretrained(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "pretrain"
    diptych("pretrain", PRETRAIN, "--data", world, "--out", out, *tiny(**{"data.split": "train"}))
    return out


def test_a_killed_run_ends_with_the_same_weights(world: Path, pretrained: Path, tmp_path: Path) -> None:
    again = ("pretrain", PRETRAIN, "--data", world, "--out", tmp_path, *tiny(**{"data.split": "train"}))
    kill_at_its_first_checkpoint(tmp_path, *again)
    assert "repeat the run's command to" in diptych("caption", "x.png", "--model", tmp_path, check=False).stderr
    diptych(*again)
    assert weights(tmp_path) == weights(pretrained)
    assert steps(tmp_path) == steps(pretrained) == list(range(1, 21))


def test_another_recipe_in_the_same_folder_is_refused(world: Path, pretrained: Path) -> None:
    before = weights(pretrained)
    changed = tiny(**{"data.split": "train", "optimizer.lr": 0.5})
    done = diptych("pretrain", PRETRAIN, "--data", world, "--out", pretrained, *changed, check=False)
    assert done.returncode == 2
    assert "optimizer.lr: 0.5, was 0.002" in done.stderr
    assert weights(pretrained) == before


@pytest.fixture(scope="session")
def captioner(world: Path, pretrained: Path) -> Path:
    out = pretrained.parent / "caption"
    settings = tiny(**{"training.steps": 60, "training.validate_every": 60, "training.checkpoint_every": 30})
    diptych("finetune", "caption", "--data", world, "--model", pretrained, "--out", out, *settings)
    return out


def test_a_captioner_scores(world: Path, captioner: Path, tmp_path: Path) -> None:
    done = diptych("evaluate", "--model", captioner, "--data", world, "--out", tmp_path / "said.json", "--json")
    scores = json.loads(done.stdout)["scores"]
    assert scores["CIDEr"]["ceiling"] > scores["CIDEr"]["blind"]
    assert set(scores) >= {"BLEU-4", "CIDEr"}
    said = json.loads((tmp_path / "said.json").read_text())
    assert [s["key"] for s in said] == [r.key for r in (Store(world).words(i) for i in range(60)) if r.split == "test"]


def test_a_moved_model_folder_says_the_same(world: Path, captioner: Path, tmp_path: Path) -> None:
    import shutil

    records = [Store(world).record(index) for index in range(3)]
    here = library.load(captioner).caption(records)
    moved = shutil.copytree(captioner / "model", tmp_path / "elsewhere")
    assert library.load(moved).caption(records) == here
    assert str(captioner) not in "".join(p.read_text() for p in moved.rglob("*.json"))


def test_ground_truth_eyes_cannot_look_at_a_picture(captioner: Path, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (64, 64), "red").save(tmp_path / "a.png")
    done = diptych("caption", tmp_path / "a.png", "--model", captioner, check=False)
    assert done.returncode == 1
    assert "trained on ground-truth regions" in done.stderr


def test_questions(world: Path, pretrained: Path) -> None:
    out = pretrained.parent / "vqa"
    diptych("finetune", "vqa", "--data", world, "--model", pretrained, "--out", out, *tiny())
    model = library.load(out)
    answer = model.ask(Store(world).record(0), ["how many birds are there?", "is it night?"])
    assert set(answer) <= set(model.predictor.folder.answers.names) - {"<unk>"}  # type: ignore[union-attr]
    scores = json.loads(diptych("evaluate", "--model", out, "--data", world, "--json").stdout)["scores"]
    assert {"accuracy", "accuracy yes/no"} <= set(scores)


def test_torchrun_gives_the_weights_of_one_process(world: Path, pretrained: Path, tmp_path: Path) -> None:
    """Two processes share each batch; one process computes the same two parts one after the other."""
    settings = tiny(**{"data.split": "train", "training.precision": "fp32", "training.micro_batch": 4})
    arguments = ["pretrain", PRETRAIN, "--data", str(world), *settings]
    diptych(*arguments, "--out", tmp_path / "one")
    torchrun = [
        sys.executable,  # an interpreter: torchrun as users start it
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "-m",
        "diptych.cli",
    ]
    shared = [*torchrun, *arguments, "--out", str(tmp_path / "two")]
    done = subprocess.run(shared, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr
    from safetensors.torch import load_file

    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    for name, tensor in one.items():
        assert tensor.allclose(two[name], rtol=1e-4, atol=1e-6), name
