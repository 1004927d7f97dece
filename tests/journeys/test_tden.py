"""TDEN from the command line: train -> predict -> score; captions, answers, search."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import diptych as library
from diptych.core import Vocabulary
from diptych.data.store.store import Store
from diptych.data.store.tokens import SPECIAL
from diptych.runs.run import run as train
from diptych.systems import find_recipe
from diptych.systems.tden.model import Tden, TdenResolvedConfig
from diptych.tasks.two_towers import TowerGallery, embed_sentences
from tests.support.exporting import export_tden

SMALL = {
    "model.width": 32,
    "model.heads": 2,
    "model.ffn": 64,
    "model.similarity_width": 16,
    "training.batch": 8,
    "training.steps": 8,
    "training.validate_every": 4,
    "training.checkpoint_every": 2,
    "training.log_every": 1,
    "data.validation_records": 4,
}


def settings(**more: object) -> list[str]:
    return [f"{key}={value}" for key, value in (SMALL | more).items()]


@pytest.fixture(scope="session")
def pretrained(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tden") / "pretrain"
    train(find_recipe("tden/small/pretrain", settings()), Store(world), out)
    return out


@pytest.fixture
def finetuned(run, world: Path, pretrained: Path, tmp_path: Path) -> Callable[[str], Path]:
    def made(task: str) -> Path:
        chosen = [word for key in ("training.steps", "training.validate_every") for word in ("--set", f"{key}=6")]
        out = tmp_path / task
        result = run("finetune", task, "--data", world, "--model", pretrained, "--out", out, *chosen)
        assert result.code == 0, result.error
        return out

    return made


def test_it_captions_and_shows_what_regions_weighed(run, world, finetuned) -> None:
    tuned = finetuned("caption")
    result = run("evaluate", "--model", tuned, "--data", world, "--json")
    assert {"BLEU-4", "CIDEr"} <= set(json.loads(result.out)["scores"])
    records = [Store(world).record(index) for index in range(2)]
    model = library.load(tuned)
    for record, said in zip(records, model.caption(records), strict=True):
        shown = model.explain(record, said)
        assert [len(row) for row in shown.weights] == [len(said.boxes)] * len(shown.words)


def test_it_answers(run, world, finetuned) -> None:
    tuned = finetuned("vqa")
    result = run("evaluate", "--model", tuned, "--data", world, "--json")
    assert {"accuracy", "accuracy yes/no"} <= set(json.loads(result.out)["scores"])
    (answer,) = library.load(tuned).ask(Store(world).record(0), ["is it night?"])
    assert answer


def test_it_searches(run, world, finetuned) -> None:
    tuned = finetuned("retrieval")
    result = run("evaluate", "--model", tuned, "--data", world, "--json")
    scores = json.loads(result.out)["scores"]
    assert {"image retrieval R@1", "text retrieval R@10"} <= set(scores)
    assert scores["image retrieval R@1"]["blind"] == pytest.approx(100 / 12)
    result = run("evaluate", "--model", tuned, "--data", world)
    assert "of 12 images" in result.out
    model = library.load(tuned).predictor.folder
    store = Store(world)
    gallery = TowerGallery.of_pictures(model.model, [store.record(index) for index in range(10)])
    ((best, *others),) = gallery.search(embed_sentences(model.model, model.tokens, ["a dog on the beach"]), 3)
    assert len(others) == 2
    assert best.score >= others[0].score


def test_an_official_checkpoint_becomes_a_model_folder(run, tmp_path) -> None:
    torch.manual_seed(0)
    words = Vocabulary(20, 0, 1, 2, 3, 4)
    shape = {"width": 64, "heads": 1, "ffn": 32, "object_layers": 1, "sentence_layers": 1, "cross_layers": 1}
    form = {"cross_ffn": "official", "tied_words": False, "similarity": "official", "similarity_width": 8}
    config = TdenResolvedConfig(vocabulary=words, feature_size=6, classes=5, decoder_layers=1, **shape, **form)
    model = Tden(config, ("word", "region_class", "similarity"))
    torch.save({"model": export_tden(model)}, tmp_path / "official.pth")
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(15))]))
    vocab = ("--vocab", tmp_path / "vocab.txt", "--uncased")
    result = run("import", "tden", tmp_path / "official.pth", "--out", tmp_path / "model", *vocab)
    assert result.code == 0, result.error
    assert "0 missing, 1 left" in result.out
    again = library.load(tmp_path / "model").predictor.folder.model
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    result = run("import", "tden", tmp_path / "official.pth", "--out", tmp_path / "model", *vocab)
    assert result.code == 2
    assert "exists already" in result.error
