"""XGPT from the command line: each stage from the one before, killed and resumed, then captions and answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from diptych.api.model import Model
from diptych.core import Record
from diptych.data.store.store import Store, StoreWriter
from diptych.data.store.tokens import Tokens
from diptych.inference.predictor import Predictor
from diptych.runs.folder import open_model
from diptych.runs.run import run as train
from diptych.runs.start import fit_to
from diptych.runtime.errors import CheckpointError, DataError, RecipeError
from diptych.systems import find_recipe
from tests.journeys.conftest import Result, diptych, kill_at_its_first_checkpoint
from tests.support.logged import steps, weights

SHAPE = {"model.width": 32, "model.layers": 1, "model.heads": 2, "model.ffn": 64, "model.positions": 32}
SETTINGS = {"training.steps": 6, "training.batch": 8, "training.precision": "fp32", "training.validate_every": 3}
LENGTHS = {"training.checkpoint_every": 3, "training.log_every": 1, "data.validation_records": 4}


def settings(**more: object) -> list[str]:
    values = {**SETTINGS, **LENGTHS, **more}
    return [word for key, value in values.items() for word in ("--set", f"{key}={json.dumps(value)}")]


@pytest.fixture(scope="module")
def stages(world: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Text alone, then pictures, then in domain: each from the last."""
    folder, made, start = tmp_path_factory.mktemp("xgpt"), {}, None
    for stage in ("text", "pretrain", "in-domain"):
        given = {**SETTINGS, **LENGTHS, **(SHAPE if start is None else {}), "data.tokens": "bpe"}
        recipe = find_recipe(f"xgpt/small/{stage}", [f"{k}={json.dumps(v)}" for k, v in given.items()])
        if start is not None:
            recipe = fit_to(recipe, start)
        start = train(recipe, Store(world), folder / stage, start=start).model
        made[stage] = folder / stage
    return made


def test_captions_and_answers(stages: dict[str, Path], world: Path, tmp_path: Path, run: Callable[..., Result]) -> None:
    for task in ("caption", "vqa"):
        out = tmp_path / task
        result = run("finetune", task, "--data", world, "--model", stages["in-domain"], "--out", out, *settings())
        assert result.code == 0, result.error
    said = open_model(tmp_path / "caption")
    assert said.tokens.kind == "bpe"
    result = run("evaluate", "--model", tmp_path / "caption", "--data", world, "--json")
    assert result.code == 0, result.error
    assert "CIDEr" in result.out
    record = Store(world).record(Store(world).split("test")[0])
    model = Model(Predictor(said))
    (first,) = model.caption([record])
    assert isinstance(first, str)
    most = min(len(record.regions), said.architecture.config.max_regions)
    assert {len(row) for row in model.explain(record, first).weights} == {most}
    assert Model(Predictor(open_model(tmp_path / "vqa"))).ask(record, "what colour is it?")


def test_a_stage_that_was_stopped_goes_on_to_the_same_weights(
    stages: dict[str, Path], world: Path, tmp_path: Path
) -> None:
    start = open_model(stages["text"])
    recipe = open_model(stages["pretrain"]).recipe
    assert recipe is not None
    half = tmp_path / "half"
    shutil.copytree(stages["pretrain"], half)
    shutil.rmtree(half / "checkpoints" / "step-00000006")
    shutil.rmtree(half / "model")
    (half / "weights.safetensors").unlink()
    train(recipe, Store(world), half, start=start)
    ours, theirs = (load_file(folder / "weights.safetensors") for folder in (half, stages["pretrain"]))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_killed_run_ends_with_the_same_weights(world: Path, tmp_path: Path) -> None:
    """Through all four tasks in turn, which stand at another one when the run goes on."""
    given = {**SHAPE, **LENGTHS, **SETTINGS, "training.steps": 30, "training.validate_every": 30}
    chosen = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    train(find_recipe("xgpt/small/pretrain", chosen), Store(world), tmp_path / "whole")
    words = [word for one in chosen for word in ("--set", one)]
    again = ("pretrain", "xgpt/small/pretrain", "--data", world, "--out", tmp_path / "killed", *words)
    kill_at_its_first_checkpoint(tmp_path / "killed", *again)
    diptych(*again)
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    assert steps(tmp_path / "killed") == list(range(1, 31))


def test_any_text_file_will_do(world: Path, tmp_path: Path, run: Callable[..., Result]) -> None:
    """Then no picture is read, and its words are known; captions go on from there."""
    book, out = tmp_path / "book.txt", tmp_path / "text"
    book.write_text("the zebra wears a hat\nzebras sing at night, don't they?\n\n" * 8)
    text = settings(**SHAPE, **{"data.text": str(book), "data.text_words": 20, "data.tokens": "bpe"})
    result = run("pretrain", "xgpt/small/text", "--data", world, "--out", out, *text)
    assert result.code == 0, result.error
    made = open_model(out)
    assert made.tokens.vocabulary.unknown not in made.tokens.encode("zebra")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {"masked_language", "text_fragment"} == {name for line in lines for name in line["losses"]}
    further = ("pretrain", "xgpt/small/pretrain", "--data", world, "--model", out, *settings(**SHAPE))
    result = run(*further, "--out", tmp_path / "further")
    assert result.code == 0, result.error
    result = run(*further, "--out", tmp_path / "mixed", "--set", f"data.text={book}", "--set", "data.text_words=20")
    assert result.code == 2
    assert "need them (captions, fragments, denoising, regions). First train on data.text with" in " ".join(
        result.error.split()
    )


# ---- what cannot be trained on, or goes with nothing --------------------------------------------------


def store_of(folder: Path, records: list[Record], like: Path) -> Store:
    with StoreWriter(folder, Store(like).contract, 100) as writer:
        for record in records:
            writer.add(record)
    return Store(folder)


def test_captions_of_unknown_words_and_pictures_without_regions_are_counted(
    stages: dict[str, Path], world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = open_model(stages["in-domain"])
    good = [Store(world).record(index) for index in Store(world).split("train")[:8]]
    strange = Record("strange", "train", captions=("жжж щщщ",), regions=good[0].regions)
    nothing = Record("nothing", "train", captions=("a red kite",), regions=good[0].regions.first(0))
    recipe = find_recipe("xgpt/small/caption", [f"{k}={json.dumps(v)}" for k, v in (SETTINGS | LENGTHS).items()])
    recipe = fit_to(recipe, start)
    mixed = store_of(tmp_path / "mixed", [*good, strange, nothing], world)
    train(recipe, mixed, tmp_path / "run", start=start)
    result = capsys.readouterr().err
    assert "left out: 1 caption; the vocabulary has none of their words (the first: strange#0" in result
    assert "1 of 10 images are left out: no region was found in them (the first: nothing)" in result
    alone = store_of(tmp_path / "alone", [strange], world)
    with pytest.raises(DataError, match=r"nothing to train on.*the vocabulary has none of their words"):
        train(recipe, alone, tmp_path / "none", start=start)
    with pytest.raises(DataError, match=r"no region was detected, and xgpt needs one; .*score"):
        Model(Predictor(start)).caption(nothing)
    refused: list[str] = []
    seen = Predictor(start).extract([nothing, good[0]], lambda _, error: refused.append(str(error)))
    assert (len(seen), len(refused)) == (1, 1)


def test_a_tokeniser_that_is_not_the_checkpoint_s(stages: dict[str, Path], world: Path, tmp_path: Path) -> None:
    start, other = open_model(stages["in-domain"]), Tokens.train(["a kite", "two dogs"], 60, kind="bpe")
    other.save(tmp_path)
    recipe = find_recipe("xgpt/small/caption", [f"data.vocabulary={tmp_path / 'tokenizer.json'}"])
    with pytest.raises(RecipeError, match=r"is not the tokeniser of .*; leave out data.vocabulary"):
        train(recipe, Store(world), tmp_path / "run", start=start)
    copy = tmp_path / "copy"
    shutil.copytree(start.folder, copy)
    other.save(copy)
    with pytest.raises(CheckpointError, match=r"is not the tokeniser of these weights, .* as a whole"):
        open_model(copy)
    text = (start.folder / "tokenizer.json").read_text()
    (copy / "tokenizer.json").write_text(text.replace('"lowercase"', '"lowercase" ').replace("Lowercase", "NFKC"))
    with pytest.raises(CheckpointError, match="`normalizer` is NFKC"):
        open_model(copy)


def test_tokens_of_both_kinds_from_the_command_line(world: Path, tmp_path: Path, run: Callable[..., Result]) -> None:
    for kind in ("wordpiece", "bpe"):
        result = run("tokenizer", "train", "--data", world, "--out", tmp_path / kind, "--kind", kind, "--size", 300)
        assert result.code == 0, result.error
        assert Tokens.load(tmp_path / kind).kind == kind


def test_a_vocabulary_of_plain_text(tmp_path: Path, run: Callable[..., Result]) -> None:
    (tmp_path / "one.txt").write_text("a zebra walks\n\nit stops\n" * 3)
    (tmp_path / "two.txt").write_text("a quiet lake\n" * 3)
    files = ("--text", tmp_path / "one.txt", "--text", tmp_path / "two.txt")
    result = run("tokenizer", "train", *files, "--out", tmp_path / "made", "--size", 300)
    assert result.code == 0, result.error
    learnt = Tokens.load(tmp_path / "made")
    assert len(learnt.encode("zebra quiet lake")) == 3, "words of both files stay whole"
    result = run("tokenizer", "train", "--out", tmp_path / "none")
    assert (result.code, "Missing --data STORE or --text FILE" in result.error) == (2, True), result.error
