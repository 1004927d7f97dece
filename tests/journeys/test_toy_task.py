"""A task that stands in the tests' folder alone goes the whole way: `src` knows nothing of it but a line in `TASKS`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from diptych.api.model import load
from diptych.data.store.store import Store
from diptych.inference.card import Publisher, model_card
from diptych.runs.reports.html import page
from diptych.systems import RECIPES, SYSTEMS, add_task
from diptych_serve.service.app import PAGE_VIEW
from diptych_serve.service.service import Service
from diptych_world.demo.measure import measure
from diptych_world.demo.page import demo_report
from tests.journeys.conftest import Result, tiny
from tests.support.broken_off import BROKEN_OFF, score_broken_off
from tests.support.service import Local
from tests.support.tables import added

NAME = BROKEN_OFF.name


@pytest.fixture
def with_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    added(monkeypatch, lambda: add_task(BROKEN_OFF))


@pytest.mark.usefixtures("with_broken_off")
def test_every_system_has_a_small_recipe_of_a_task_that_it_can_learn() -> None:
    for system in SYSTEMS:
        made = RECIPES[f"{system}/small/{NAME}"]()
        assert (made.task, made.model) == (NAME, RECIPES[f"{system}/small/pretrain"]().model)
        assert (made.training.batch, made.data.max_words) == (64, 24)
    with pytest.raises(KeyError):
        RECIPES["vl-bert/small/caption"]  # it writes nothing


@pytest.mark.slow
@pytest.mark.usefixtures("with_broken_off")
def test_a_toy_task_goes_the_whole_way(run: Callable[..., Result], world: Path, tmp_path: Path) -> None:
    start, out, kept = tmp_path / "start", tmp_path / "out", tmp_path / "kept.json"
    steps = {"data.split": "train", "training.steps": 2}
    made = run("pretrain", "unified-vlp/small/pretrain", "--data", world, "--out", start, *tiny(**steps))
    assert made.code == 0, made.error
    settings = {"training.steps": 40, "training.validate_every": 20, "training.checkpoint_every": 40,
                "training.batch": 16, "data.validation_records": 4, "optimizer.kind": "adamw",
                "optimizer.lr": 3e-3}  # fmt: skip
    result = run(
        "finetune", NAME, "--data", world, "--model", start, "--out", out,
        *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
    )  # fmt: skip
    assert result.code == 0, result.error
    line = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["step"] == 40
    scored = run("evaluate", "--model", out, "--data", world, "--json", "--out", kept)
    assert scored.code == 0, scored.error
    found = json.loads(scored.out)
    assert found["task"] == NAME
    accuracy = found["scores"]["accuracy"]
    assert accuracy["blind"] == 50
    assert accuracy["value"] > 90
    predicted = BROKEN_OFF.by_key(json.loads(kept.read_text()))
    records = [Store(world).record(index) for index in Store(world).split("test")]
    assert score_broken_off(predicted, records)["accuracy"].value == accuracy["value"]
    shown = run("evaluate", "--model", out, "--data", world)
    assert f"{found['items']} sentences of 12 images" in shown.out
    captions = run("evaluate", "--model", out, "--data", world, "--task", "caption", "--json")
    of_captions = json.loads(captions.out)
    assert of_captions["task"] == "caption", captions.error
    assert f"was last trained for {NAME}, not for caption" in "".join(of_captions["notes"])
    assert not any("last trained" in note for note in found["notes"])
    another = run("evaluate", "--model", out, "--data", world, "--task", "vcr")
    assert another.code == 2
    assert "was not trained for vcr; run diptych finetune vcr" in another.error


@pytest.mark.slow
@pytest.mark.usefixtures("with_broken_off")
def test_a_toy_task_is_asked_everywhere(run: Callable[..., Result], with_detector: Path, tmp_path: Path) -> None:
    """From the command line, by Python, over HTTP and by the page's form; a card names it, and export refuses it."""
    out, photos = tmp_path / "out", with_detector.parent / "photos"
    settings = ("--set", "training.steps=2", "--set", "training.batch=4", "--set", "data.validation_records=2")
    store = with_detector.parent / "store"
    done = run("finetune", NAME, "--data", store, "--model", with_detector, "--out", out, *settings)
    assert done.code == 0, done.error
    picture, sentences = photos / "000.jpg", ("a red dog", "a dog beside a")
    listed = run("break", picture, *sentences, "--model", out, "--json")
    assert listed.code == 0, listed.error
    told = [json.loads(line) for line in listed.out.splitlines()]
    assert [line["sentence"] for line in told] == list(sentences)
    alone = run("break", picture, sentences[0], "--model", out)
    assert alone.out == ("whole\n" if told[0]["whole"] else "broken off\n")
    assert "Decide whether a sentence is whole" in run("break", "--help").out
    assert load(out).predict(NAME, picture, sentence=sentences[0]).whole == told[0]["whole"]
    local = Local(Service({"toy": load(out).predictor}))
    try:
        (model,) = local.get("/v1/models").json()["models"]
        assert model["tasks"] == ["verify", "break"]  # by the same head
        (form,) = [one for one in local.get("/v1/forms").json() if one["task"] == "break"]
        assert (form["name"], form["pictured"], form["fields"][0]["label"]) == ("Whole", True, "Sentence")
        asked = {"files": {"image": ("000.jpg", picture.read_bytes())}, "data": {"sentence": sentences[0]}}
        answer = local.ask("POST", "/v1/break", **asked).json()
        assert answer == {**told[0], "picture": "000.jpg"}
        shown = local.ask("POST", "/v1/break", headers={"accept": PAGE_VIEW}, **asked).json()
        assert shown["verdicts"] == [alone.out.strip()]
        assert "/v1/break" in local.get("/docs").text
        assert "/v1/break" in local.get("/openapi.json").json()["paths"]
    finally:
        local.service.worker.stop()
    card = model_card(load(out).predictor.folder, "me/toy", Publisher())
    assert "; it decides whether a sentence is whole." in card
    refused = run("export", out, "--out", tmp_path / "programs")
    assert refused.code != 0
    assert "was trained for neither captions nor questions" in refused.error


@pytest.mark.usefixtures("with_broken_off")
def test_a_toy_task_stands_in_tables_and_reports(world: Path, tmp_path: Path) -> None:
    records = [Store(world).record(index) for index in Store(world).split("test")]
    keys = [f"{r.key}#{n}/{o}" for r in records for n in range(len(r.captions)) for o in (True, False)]
    right = {key: key.endswith("True") for key in keys}
    measured = measure({NAME: {"never": dict.fromkeys(keys, False), "always": right}}, records, records)
    assert measured.scores[NAME]["always"]["accuracy"].value == 100
    assert NAME not in measured.gains
    shown = page(demo_report(measured, ("dog",), {}, {"evaluate": 1.0}, {}, {}, {}))
    assert "Broken off, accuracy: never 50.0, always 100.0 (blind 50.0)" in shown
    assert "a model that learns to tell whole sentences" in shown


def test_unknown_tasks_are_refused_with_the_nearest_name(
    run: Callable[..., Result], world: Path, tmp_path: Path
) -> None:
    wrong = run("finetune", "captions", "--data", world, "--model", tmp_path, "--out", tmp_path / "out")
    assert wrong.code == 2
    assert "'captions' is not a task for fine-tuning; did you mean caption" in wrong.error
    taught = run("finetune", "pretrain", "--data", world, "--model", tmp_path, "--out", tmp_path / "out")
    assert taught.code == 2
    assert "'pretrain' is not a task for fine-tuning" in taught.error
    recipe = run("pretrain", "unified-vlp/small/pretrain", "--data", world, "--out", tmp_path, "--set", "task=nlv")
    assert recipe.code == 2
    assert "task: no task 'nlv'; did you mean nlvr" in recipe.error
