"""A service answers each task as the command line does, refuses by name, and shares passes among requests."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.api.model import Model
from diptych.core import FeatureContract
from diptych.inference.predictor import Predictor
from diptych.runtime.errors import GalleryError
from diptych.runtime.progress import advancing
from diptych.tasks import tasks_by_verb
from diptych.tasks.answers import UNKNOWN
from diptych_serve.service.pictures import PictureGallery
from diptych_serve.service.service import Service
from tests.support.service import Local, hold, make_model, picture, problem


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return make_model(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    for colour in ("red", "green", "blue"):
        (folder / f"secret-{colour}.png").write_bytes(picture(colour))
    (folder / "cut.png").write_bytes(picture()[:100])
    return folder


@pytest.fixture
def local(
    model: Predictor, gallery: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Local]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    made = Local(Service({"toy": model}, PictureGallery(gallery)))
    yield made
    made.service.worker.stop()


ASKED: dict[str, dict[str, Any]] = {
    "caption": {"captions": "2", "max_words": "6"},
    "ask": {"question": "what colour is the dog"},
    "ground": {"expression": "the dog"},
    "choose": {"question": "what is it", "answers": ["a dog", "a kite"], "rationales": ["it is red", "it is the dog"]},
    "verify": {"statement": "the dog is red"},
}


@pytest.mark.parametrize("task", ASKED)
def test_a_picture_as_a_file_and_in_json_are_answered_alike(local, task):
    content = picture()
    as_form = local.post(f"/v1/{task}", content, data=ASKED[task])
    encoded = {"image": base64.b64encode(content).decode(), "picture": "folder/a.png", **ASKED[task]}
    as_json = local.post(f"/v1/{task}", json=encoded)
    assert as_form.status_code == 200, as_form.text
    assert as_form.json() == as_json.json()
    assert as_form.json()["picture"] == "a.png", "the last part of the name, told again"
    assert "model;dur=" in as_form.headers["server-timing"]


@pytest.mark.parametrize("task", ASKED)
def test_the_service_says_what_the_command_line_prints(local, model, task, tmp_path, run_cli):
    (tmp_path / "a.png").write_bytes(picture())
    given = ASKED[task]
    words = {
        "caption": ["caption", "a.png", "--num-captions", "2", "--max-words", "6"],
        "ask": ["ask", "a.png", given.get("question")],
        "ground": ["ground", "a.png", given.get("expression")],
        "choose": ["choose", "a.png", given.get("question"), *given.get("answers", ()), "--rationale", "it is red",
                   "--rationale", "it is the dog"],
        "verify": ["verify", "a.png", given.get("statement")],
    }[task]  # fmt: skip
    printed = run_cli([*words, "--json", "--model", str(model.folder.folder)], tmp_path)
    told = local.post(f"/v1/{task}", picture(), data=given).json()
    line = json.loads(printed)
    line.pop("shown", None)
    assert list(told) == list(line)
    for name, value in line.items():
        assert told[name] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), name


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    from diptych.cli import app

    def run(words: list[str], folder: Path) -> str:
        monkeypatch.chdir(folder)
        app(words, standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_an_explanation_has_a_weight_for_each_word_and_region(local, model):
    told = local.post("/v1/caption", picture(), data={"explain": "true", "max_words": "5"}).json()
    found = told["explanation"]
    assert (found["width"], found["height"]) == (48, 40)
    assert len(found["weights"]) == len(found["words"])
    assert {len(row) for row in found["weights"]} == {len(found["regions"])}
    said = Model(model).caption(picture(), max_words=5)
    shown = Model(model).explain(picture(), said)
    assert (told["caption"], tuple(found["words"])) == (said, shown.words)
    torch.testing.assert_close(torch.tensor(found["weights"]), torch.tensor(shown.weights), atol=1e-3, rtol=1e-3)
    asked = local.post("/v1/ask", picture(), data={"explain": "true", "question": "what colour"}).json()
    assert len(asked["explanation"]["weights"]) == 1


def test_the_five_likeliest_answers_come_in_order(local):
    told = local.post("/v1/ask", picture(), data={"question": "what colour"}).json()
    shares = [told["probability"], *(other["probability"] for other in told["others"])]
    assert len(shares) == 5
    assert shares == sorted(shares, reverse=True)
    assert UNKNOWN not in (told["answer"], *(other["answer"] for other in told["others"]))


def test_a_search_tells_ids_and_names_below_the_folder_and_no_paths(local, gallery):
    told = local.post("/v1/search", json={"query": "a red kite", "top_k": 2})
    assert told.status_code == 200, told.text
    found = told.json()
    assert (len(found["hits"]), found["searched"], found["refused"]) == (2, 3, 1)
    assert {hit["name"] for hit in found["hits"]} <= {path.name for path in gallery.iterdir()}
    assert str(gallery) not in told.text
    shown = local.get(f"/v1/pictures/{found['hits'][0]['picture']}")
    assert shown.headers["content-type"] == "image/jpeg"
    with Image.open(io.BytesIO(shown.content)) as image:
        assert image.size == (48, 40)
    for name in ("secret-red.png", "..%2fsecret-red.png", "%2fetc%2fpasswd", "0" * 20):
        problem(local.get(f"/v1/pictures/{name}"))


def test_a_database_that_is_away_is_no_fault_of_who_asks_and_is_not_told_them(local, model, monkeypatch, caplog):
    def away(*_: object, **__: object) -> None:
        raise GalleryError("the database of postgresql://me@db.secret cannot be reached; start it")

    monkeypatch.setattr(model, "search", away)
    refused = problem(local.post("/v1/search", json={"query": "a red kite"}))
    assert refused["status"] == 503
    assert "the database of this service's gallery does not answer" in refused["detail"]
    assert "db.secret" not in str(refused)
    assert "db.secret" in caplog.text


def test_what_a_service_offers_is_what_its_models_have_learnt(tmp_path, model):
    writer = make_model(tmp_path / "writer", ["word"])
    local = Local(Service({"toy": model, "writer": writer}))
    told = {one["name"]: one for one in local.get("/v1/models").json()["models"]}
    assert told["toy"]["tasks"] == ["caption", "ask", "ground", "choose", "verify"], "no pictures, no search"
    assert told["writer"]["tasks"] == ["caption"]
    assert told["writer"]["sees"] == ["dog", "bird"]
    refused = problem(local.post("/v1/ask", picture(), data={"question": "what", "model": "writer"}))
    assert refused["status"] == 422
    assert "'writer' does not offer the task ask; models for it: toy" in refused["detail"]
    assert "start the service with --images" in problem(local.post("/v1/search", json={"query": "a kite"}))["detail"]
    both = [local.post("/v1/caption", picture(), data={"model": name}).json()["score"] for name in ("toy", "writer")]
    assert len(both) == 2
    local.service.worker.stop()


def test_a_gallery_is_looked_at_before_anybody_asks(model, gallery, tmp_path, monkeypatch, capsys):
    from diptych.runtime.errors import DataError

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("diptych.runtime.progress.SPARSE_SECONDS", 0.0)
    Service({"toy": model}, PictureGallery(gallery)).warm(advancing)
    assert re.search(r"^extracting \d+/\d+ pictures, .* left, until ", capsys.readouterr().err)
    seen: list[int] = []
    detect = type(model.detector).detect
    monkeypatch.setattr(
        type(model.detector), "detect", lambda self, some, of: seen.append(len(some)) or detect(self, some, of)
    )
    model.search("a red kite", gallery)
    assert not seen
    with pytest.raises(DataError, match="is not a folder"):
        Service({"toy": model}, PictureGallery(tmp_path / "nowhere")).warm()


def test_requests_that_come_together_share_a_pass_and_are_answered_as_alone(local, model):
    colours = ("red", "green", "blue", "white", "black", "yellow")
    alone = [local.post("/v1/caption", picture(colour)).json() for colour in colours]
    batches: list[int] = []
    answer = local.service.worker.answer_batch
    local.service.worker.answer_batch = lambda jobs: batches.append(len(jobs)) or answer(jobs)
    held = threading.Event()
    hold(local, held)
    asked = [("POST", "/v1/caption", {"files": {"image": ("a.png", picture(colour))}}) for colour in colours]

    async def together() -> list[Any]:
        sending = asyncio.ensure_future(local.together(asked))
        while len(local.service.worker) < len(colours):
            await asyncio.sleep(0.01)
        held.set()
        return await sending

    told = [answer.json() for answer in asyncio.run(together())]
    assert batches[-1] == len(colours)
    for one, other in zip(alone, told, strict=True):
        assert other["caption"] == one["caption"]
        assert other["score"] == pytest.approx(one["score"], abs=1e-3)


def test_a_broken_request_does_not_fail_those_beside_it(local, model, monkeypatch):
    answers = type(model).answers

    def poisoned(self: Predictor, spec: Any, asked: Any) -> Any:
        if any(record.size == (20, 20) for record, _ in asked):
            raise RuntimeError("a fault in /a/path")
        return answers(self, spec, asked)

    monkeypatch.setattr(type(model), "answers", poisoned)
    held = threading.Event()
    hold(local, held)
    contents = [picture(), picture(size=(20, 20)), picture("blue")]

    async def together() -> list[Any]:
        asked = [("POST", "/v1/caption", {"files": {"image": ("a.png", content)}}) for content in contents]
        sending = asyncio.ensure_future(local.together(asked))
        while len(local.service.worker) < len(contents):
            await asyncio.sleep(0.01)
        held.set()
        return await sending

    first, second, third = asyncio.run(together())
    assert (first.status_code, second.status_code, third.status_code) == (200, 500, 200)
    assert "/a/path" not in second.text


def test_drawn_captions_follow_their_seed(local):
    def drawn(seed: int) -> str:
        told = local.post("/v1/caption", picture(), data={"sample": "true", "seed": str(seed), "max_words": "8"})
        return str(told.json()["caption"])

    assert drawn(3) == drawn(3)
    assert len({drawn(seed) for seed in range(6)}) > 1


def test_metrics_count_what_was_asked(local):
    local.post("/v1/caption", picture())
    local.post("/v1/caption", b"no picture")
    text = local.get("/metrics").text
    assert 'diptych_requests_total{status="200",task="caption"} 1.0' in text
    assert 'diptych_requests_total{status="415",task="caption"} 1.0' in text
    assert "diptych_batch_requests_count 1.0" in text


def test_the_page_and_the_documents_name_no_other_host(local):
    import re

    for path in ("/", "/docs", "/page.js", "/view.js", "/history.js", "/docs.js", "/page.css", "/icon.svg"):
        answer = local.get(path)
        assert answer.status_code == 200, path
        hosts = set(re.findall(r"(?:https?:)?//([\w.-]+\.\w+)", answer.text)) - {"www.w3.org", "127.0.0.1"}
        assert not hosts, path
        assert "style=" not in answer.text.replace("viewport", ""), "the policy lets no style inside"
    assert "script-src 'self'" in local.get("/").headers["content-security-policy"]
    docs = local.get("/docs").text
    for task in tasks_by_verb():
        assert f"/v1/{task}" in docs
    assert local.get("/openapi.json").json()["paths"]["/v1/caption"]["post"]["requestBody"]["content"].keys() == {
        "multipart/form-data",
        "application/json",
    }


def test_the_log_has_a_line_for_each_request_and_nothing_of_what_was_asked(local, caplog):
    from diptych_serve.service import guard

    guard.log.propagate = True
    with caplog.at_level("INFO", "diptych.serve"):
        local.post("/v1/ask", picture(), data={"question": "what colour is my secret"})
    (line,) = [json.loads(record.message) for record in caplog.records]
    assert (line["task"], line["status"], line["batch"], line["model"]) == ("ask", 200, 1, "toy")
    assert {"time", "ms", "queue_ms", "extraction_ms", "model_ms"} <= line.keys()
    assert "secret" not in caplog.text


def test_given_features_are_found_by_the_name_of_the_picture(model: Predictor, tmp_path: Path) -> None:
    contract = FeatureContract("given", "", 16, model.folder.contract.class_names)
    features = tmp_path / "secret"
    features.mkdir()
    rows = np.random.default_rng(0).random((3, 16), np.float32)
    boxes, classes = np.array([[0, 0, 20, 20]] * 3), np.full((3, len(contract.class_names)), 0.5, np.float32)
    np.savez(features / "one.npz", features=rows, boxes=boxes, classes=classes, width=48, height=40)
    local = Local(Service({"toy": Predictor(replace(model.folder, contract=contract, detector=None), features)}))
    try:
        said = local.ask("POST", "/v1/caption", files={"image": ("one.png", picture())})
        assert said.status_code == 200, said.text
        assert said.json()["picture"] == "one.png"
        refused = local.ask("POST", "/v1/caption", files={"image": ("two.png", picture())})
        assert (refused.status_code, "has no features of an image of this name" in problem(refused)["detail"]) == (
            422,
            True,
        )
        assert "secret" not in refused.text
    finally:
        local.service.worker.stop()
