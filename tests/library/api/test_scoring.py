"""Scores from Python, with their counts, and paired comparisons."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console

from diptych.api.dataset import Dataset
from diptych.api.run import Run
from diptych.api.scoring import compare, evaluate
from diptych.api.training import finetune
from diptych.data.check import check
from diptych.data.store.store import Store
from diptych.inference.model_facts import model_facts
from diptych.models.decoding import DecodingOptions
from diptych.runs.evaluation.augment import augment
from diptych.runs.folder import open_model
from diptych.runs.reports.tables import score_table
from diptych.runtime.errors import DataError, RecipeError


def test_a_model_is_scored_and_compared_on_the_same_images(captioner: Run, world: Path) -> None:
    model = captioner.model
    torch.manual_seed(5)
    before = torch.get_rng_state()
    scores = evaluate(model, Dataset.read(world))
    assert torch.equal(torch.get_rng_state(), before)
    cider = scores["CIDEr"]
    assert evaluate(captioner, Dataset.read(world))["CIDEr"] == cider
    assert cider.low is not None
    assert cider.high is not None
    assert cider.low <= cider.value <= cider.high
    assert None not in (cider.blind, cider.ceiling)
    same = compare(captioner.folder, model, Store(captioner.folder / "store"))
    assert (same.name, same.value, same.low, same.high) == ("CIDEr", 0, 0, 0)
    assert same.notes[-1] == "only 6 images: too few for a reliable comparison"
    (first, one), (second, other) = same.compared
    assert str(captioner.folder) in first
    assert second
    assert one == other == pytest.approx(cider.value)


def test_data_with_many_bad_entries_is_scored_only_where_that_is_allowed(captioner: Run, world: Path) -> None:
    records = [one for one in Dataset.read(world).records if one.split == "test"]
    assert records[0].image is not None
    folder = records[0].image.parent
    lines = [{"image": one.image.name, "captions": one.captions, "split": "test"} for one in records if one.image]
    bad = [{"image": lines[0]["image"], "captions": 5}] * 11
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, [*lines, *bad])))
    for score in (partial(evaluate, captioner.folder), partial(compare, captioner.folder, captioner.folder)):
        with pytest.raises(DataError, match=r"11 of 17 entries are invalid.*skip_bad=True"):
            score(folder / "own.jsonl")
        score(folder / "own.jsonl", skip_bad=True)


def test_an_unknown_score_is_named(captioner: Run) -> None:
    scores = evaluate(captioner.folder, Store(captioner.folder / "store"))
    with pytest.raises(KeyError, match="no score 'cider'; known: BLEU-1, BLEU-2, BLEU-3, BLEU-4, CIDEr, ROUGE-L"):
        scores["cider"]
    assert "CIDEr" in scores
    assert "cider" not in scores
    assert dict(scores) == {name: scores[name] for name in scores} == {one.name: one for one in scores.scores}


def test_few_items_are_shown_with_their_count_and_a_warning(captioner: Run) -> None:
    scores = evaluate(captioner.folder, Store(captioner.folder / "store"))
    warning = "only 6 scored: too few for a reliable score"
    assert scores.to_json()["warning"] == warning
    assert type(scores).from_json(json.loads(json.dumps(scores.to_json()))) == scores
    assert "6 items, 6 images; only 6 scored" in repr(scores)
    assert "1 item, 1 image;" in repr(replace(scores, items=1, pictures=1))
    assert len(repr(scores)) <= 300
    assert warning in scores._repr_html_()
    console = Console(width=200)
    with console.capture() as shown:
        console.print(score_table(scores))
    assert f"warning: {warning}" in shown.get()


def test_few_validated_images_are_counted_in_terminal_model_and_page(
    captioner: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finetune("caption", Store(captioner.folder / "store"), captioner.folder, out=tmp_path / "run", steps=2,
                   batch_size=8, settings={"training.validate_every": 2})  # fmt: skip
    assert "split 'val' has 4 images to validate on, fewer than 30" in capsys.readouterr().err
    assert json.loads((run.folder / "model" / "validation.json").read_text())["images"] == 4
    facts = model_facts("mine", open_model(run.folder), ("captions",))
    assert facts.scores is not None
    assert facts.scores.endswith("(of 4 images only: too few for a reliable score)")
    assert "images 4.0" not in facts.scores


def test_check_names_splits_that_are_too_small(world: Path) -> None:
    report = check([one.record for one in Dataset.read(world)])
    (small,) = [one for one in report.findings if one.kind == "split too small"]
    assert (small.severity, sorted(small.examples)) == ("warning", ["test: 6", "val: 4"])
    assert report.ok


def test_a_task_that_the_models_have_not_learnt_is_not_compared(captioner: Run, world: Path) -> None:
    with pytest.raises(RecipeError, match="was not trained for referring; run diptych finetune referring "):
        compare(captioner.folder, captioner.folder, world, task="referring")


def test_a_model_of_another_task_is_not_compared_and_augments_nothing(
    captioner: Run, world: Path, tmp_path: Path
) -> None:
    store = Store(captioner.folder / "store")
    answers = finetune("vqa", store, captioner.folder, out=tmp_path / "vqa", steps=1, batch_size=8)
    with pytest.raises(RecipeError, match="expected both for the same task, one of caption, vqa"):
        compare(captioner.folder, answers.folder, world)
    with pytest.raises(RecipeError, match="was trained for vqa, not for captions; choose another model"):
        augment(open_model(answers.folder), store, tmp_path / "more", 1, DecodingOptions(), "train", 0)
    assert not (tmp_path / "more").exists()
