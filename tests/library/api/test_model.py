"""What a model answers from Python, and what its results are."""

from __future__ import annotations

import copy
import doctest
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import diptych
from diptych.api import model as api_model
from diptych.api.results import drawing
from diptych.inference.search import Hit
from diptych.runtime.errors import DataError, RecipeError, ServingError, UnsupportedError
from diptych.tasks import CAPTION
from tests.support.service import make_model, picture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    make_model(folder)
    (folder / "photos").mkdir()
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "green")):
        (folder / "photos" / f"{name}.png").write_bytes(picture(colour))
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> diptych.Model:
    return diptych.load(folder / "model", device="cpu")


@pytest.fixture(scope="module")
def photo(folder: Path) -> Path:
    return folder / "photos" / "a.png"


RESULTS: dict[str, Callable[[diptych.Model, Any], Any]] = {
    "caption": lambda model, image: model.caption(image, captions=3, beams=5),
    "answer": lambda model, image: model.ask(image, "what colour is the dog"),
    "found": lambda model, image: model.ground(image, "the dog"),
    "judgement": lambda model, image: model.verify(image, "there is a dog"),
    "choice": lambda model, image: model.choose(image, "what is [0]", ["red", "a kite"], ["dog", "beach"]),
    "hits": lambda model, image: model.search("a red kite", [image, image]),
    "explained": lambda model, image: model.explain(image, "a red kite"),
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("kind", ["path", "bytes"])
def test_results_are_values(model: diptych.Model, photo: Path, name: str, kind: str) -> None:
    """They pickle and copy with their fields, hold neither model nor tensors, and have a short repr and a drawing."""
    result = RESULTS[name](model, photo if kind == "path" else photo.read_bytes())
    for again in (pickle.loads(content := pickle.dumps(result)), copy.copy(result), copy.deepcopy(result)):
        assert (again, type(again)) == (result, type(result))
        assert getattr(again, "__dict__", None) == getattr(result, "__dict__", None)
    assert b"torch" not in content
    assert len(content) < 8000
    assert 0 < len(repr(result)) <= 300
    drawn = result._repr_html_()
    assert drawn.count("<div") == drawn.count("</div")
    assert ("<img" in drawn or "<image" in drawn) == ((name, kind) != ("hits", "bytes"))


def test_answers_are_strings_and_numbers(model: diptych.Model, photo: Path) -> None:
    caption, answer = RESULTS["caption"](model, photo), RESULTS["answer"](model, photo)
    assert f"{caption}!" == str(caption) + "!"
    assert len(caption.others) >= 2
    assert caption.score >= max(score for _, score in caption.others)
    assert len(caption.boxes) == len(caption.labels) > 0
    assert set(caption.labels) <= {"dog", "bird"}
    assert all(0 <= x1 <= x2 <= 48 and 0 <= y1 <= y2 <= 40 for x1, y1, x2, y2 in caption.boxes)
    assert 0 < answer.others[0][1] <= answer.score <= 1
    found, verdict = RESULTS["found"](model, photo), RESULTS["judgement"](model, photo)
    assert (found.box in found.boxes, found in found.labels) == (True, True)
    assert verdict in (0, 1)
    assert repr(verdict).startswith(f"Judgement({bool(verdict)}, score=0.")
    chosen = RESULTS["choice"](model, photo)
    assert chosen.score + chosen.others[0][1] == pytest.approx(1)
    assert chosen.rationale in ("dog", "beach")


def test_words_that_the_model_does_not_know_and_texts_that_it_cuts_give_a_warning(
    model: diptych.Model, photo: Path
) -> None:
    note = "^the model does not know 麒麟, キリン$"
    with pytest.warns(diptych.UnreadWarning, match=note) as raised:
        model.ask(photo, ["what colour is the 麒麟", "is the キリン red", "is it red"])
    assert [one.filename for one in raised] == [__file__]
    with pytest.warns(diptych.UnreadWarning, match=note):
        model.choose(photo, "what is [0]", ["a 麒麟", "a キリン"])
    with pytest.warns(diptych.UnreadWarning, match=note):
        model.match(photo, "麒麟 キリン")
    with pytest.warns(diptych.UnreadWarning, match=note):
        model.search("麒麟 or キリン", photo.parent)
    most = model.predictor.folder.recipe.data.max_words
    long = " ".join(["the dog"] * most)
    with pytest.warns(diptych.UnreadWarning, match=f"^the model reads only the first {most} tokens of “the dog the"):
        model.ground(photo, long)
    assert model.predict("vqa", photo, question="what is 麒麟").unread == "the model does not know 麒麟"
    assert model.predict("vqa", photo, question="what is red").unread is None


@pytest.mark.parametrize(("limit", "sure"), [(1.0, False), (0.0, True), (None, None)])
def test_an_answer_up_to_the_limit_is_not_sure(
    model: diptych.Model, photo: Path, tmp_path: Path, limit: float | None, sure: bool | None
) -> None:
    folder = model.predictor.folder
    assert folder.answers is not None
    replace(folder, answers=replace(folder.answers, sure_above=limit)).save(tmp_path / "model")
    model = diptych.load(tmp_path / "model", device="cpu")
    assert model.ask(photo, "what colour is the dog").sure is sure
    assert model.predict("vqa", photo, question="what colour is the dog").sure is sure


def test_texts_and_images_are_paired(model: diptych.Model, photo: Path) -> None:
    questions = ["what colour is the dog", "a red kite"]
    first, second = model.ask(photo, questions)
    assert (model.ask(photo, questions[0]), model.ask(photo, questions[1])) == (first, second)
    assert model.ask([photo, photo], questions) == [first, second]
    assert model.ask([photo, photo], questions[0]) == [first, first]
    assert list(model.ask(photo, iter(questions))) == [first, second]
    assert list(model.ask(iter([photo, photo]), questions[1])) == [second, second]
    with pytest.raises(DataError, match="the numbers of images and texts differ"):
        model.ask([photo, photo], questions[:1])
    with pytest.raises(DataError, match="the numbers of images and texts differ"):
        list(model.ask(iter([photo, photo]), questions[:1]))
    with pytest.raises(ServingError, match="a question is empty"):
        model.ask(photo, " ")


WRONG_TEXTS: dict[str, tuple[Callable[[Any, Path], Any], str]] = {  # each was answered in silence, or as letters
    "ask": (lambda model, photo: model.ask(photo, None), "questions: found None, expected a text or a list of texts"),
    "nan": (lambda model, photo: model.ask(photo, ["a dog", float("nan")]), "questions: found float 'nan', exp"),
    "iterator": (lambda model, photo: list(model.verify(photo, iter([3]))), "statements: found int '3', expected"),
    "explain": (lambda model, photo: model.explain(photo, None), "caption: found None, expected a text, such as"),
    "answers": (lambda model, photo: model.choose(photo, "what", "cat"), "found 1 answer and 0 rationales"),
    "question": (lambda model, photo: model.choose(photo, None, ["a", "b"]), "question: found None, expected a text"),
    "two": (lambda model, photo: model.explain([photo, photo], "a dog"), "image: found several images, expected one"),
    "match": (lambda model, photo: model.match(photo, [None]), "texts: found None, expected a text"),
    "query": (lambda model, photo: model.search(3, [photo]), "query: found int '3', expected a text"),
    "empty": (lambda model, photo: model.search(" ", [photo]), "the query is empty; describe an image, such as"),
    "top_k": (lambda model, photo: model.search("a dog", [photo], top_k=-1), "top_k: found -1, expected a whole"),
    "rerank": (lambda model, photo: model.search("a", [photo], rerank="x"), "rerank: found str 'x', expected a loaded"),
}


@pytest.mark.parametrize("name", WRONG_TEXTS)
def test_what_is_no_text_is_refused(name: str, model: diptych.Model, photo: Path) -> None:
    call, wanted = WRONG_TEXTS[name]
    with pytest.raises((RecipeError, ServingError), match=f"^{wanted}"):
        call(model, photo)


def test_one_image_can_be_searched(model: diptych.Model, photo: Path) -> None:
    ((name, _),) = model.search("a red kite", Image.open(photo))
    assert name == Path("0")
    assert model.search("a red kite", photo)[0][0] == photo


def test_opening_a_model_and_its_detector_leaves_the_generator_alone(folder: Path, photo: Path) -> None:
    before = torch.get_rng_state()
    diptych.load(folder).caption(photo)
    assert torch.get_rng_state().equal(before)


def test_a_drawn_caption_has_its_seed_and_leaves_the_generator_alone(model: diptych.Model, photo: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    drawn = [model.caption(photo, sample=True, temperature=3.0, seed=seed) for seed in (1, 1, 2)]
    assert torch.get_rng_state().equal(before)
    assert drawn[0] == drawn[1] != drawn[2]
    assert model.caption(photo, sample=True, temperature=3.0) != model.caption(photo, sample=True, temperature=3.0)
    photos = sorted(photo.parent.iterdir())
    alone = [model.caption(one, temperature=3.0, captions=2, seed=1) for one in photos]
    assert [one.others for one in model.caption(photos[::-1], temperature=3.0, captions=2, seed=1)] == [
        tuple((text, pytest.approx(score, rel=1e-4)) for text, score in one.others) for one in alone[::-1]
    ]
    with pytest.raises(RecipeError, match="beams"):
        model.caption(photo, beams=0)


def test_requests_with_and_without_a_seed_share_no_batch(model: diptych.Model, photo: Path) -> None:
    """In one batch with a request that has no seed, torch's generator would draw the words of all."""
    interface, (record,) = CAPTION.required_interface, model.predictor.extract([photo])
    first, second, free = (interface.request(temperature=3.0, seed=seed) for seed in (1, 2, None))
    assert interface.alike(first) == interface.alike(second) != interface.alike(free)
    together = model.predictor.answers(CAPTION, [(record, first), (record, second), (record, first)])
    assert together[0].text == together[2].text == model.caption(photo, temperature=3.0, seed=1)
    assert together[1].text == model.caption(photo, temperature=3.0, seed=2)


def test_pairs_are_matched_and_searched(model: diptych.Model, folder: Path) -> None:
    paths = sorted((folder / "photos").iterdir())
    scores = model.match(paths, ["a red kite", "dog"])
    assert (scores.shape, scores.dtype) == ((3, 2), np.float32)
    assert ((scores > 0) & (scores < 1)).all()
    assert model.match(paths[0], "dog").shape == (1, 1)
    wanted = [paths[at] for at in np.argsort(-scores[:, 0])]
    hits, there = model.search("a red kite", paths), model.search("a red kite", folder / "photos", top_k=2)
    assert [path for path, _ in hits] == wanted
    assert [path for path, _ in there] == wanted[:2]
    assert [score for _, score in hits] == pytest.approx(sorted(scores[:, 0], reverse=True), abs=1e-5)
    with pytest.raises(UnsupportedError, match=r"cannot encode images and texts.*model\.match\(images, texts\)"):
        model.encode_image(paths)
    with pytest.raises(UnsupportedError, match="cannot encode images and texts as vectors"):
        model.encode_text("dog")


def test_what_a_model_has_not_learnt_is_named_before_an_image_is_read(tmp_path: Path) -> None:
    make_model(tmp_path, heads=["word"])
    model = diptych.load(tmp_path / "model")
    for ask in ("answer", "found", "judgement", "choice"):
        with pytest.raises(UnsupportedError, match="was not trained for"):
            RESULTS[ask](model, "none.png")


def test_a_model_says_what_it_is(model: diptych.Model, folder: Path) -> None:
    assert re.fullmatch(
        rf"<diptych\.Model {folder}/model: unified-vlp, 0\.\d M parameters, can caption, .*ask.*; on cpu, fp32>",
        repr(model),
    )


def test_markup_of_others_is_text() -> None:
    hostile = "<script>alert(1)</script>"
    caption = diptych.Caption.of(hostile, labels=(f'"><{hostile}',), boxes=((0, 0, 4, 4),), image=b"", size=(9, 9))
    hits = diptych.Hits((Hit(Path(hostile), 1.0),))
    for drawn in (caption._repr_html_(), hits._repr_html_(), drawing(b"", (9, 9), [((0, 0, 1, 1), hostile)], "")):
        assert "<script" not in drawn


def test_examples_of_docstrings_run(
    model: diptych.Model, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.png").write_bytes(photo.read_bytes())
    names = {"model": model, "diptych": diptych, "Image": Image}
    found = [test for test in doctest.DocTestFinder().find(api_model, globs=names) if test.examples]
    assert len(found) >= 8
    for test in found:
        test.globs |= names
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
        assert result.failed == 0, test.name


def test_threads_wait_briefly_unless_torch_is_there() -> None:
    code = "import os, sys; import diptych; {}; diptych.load; print(os.environ.get('GOMP_SPINCOUNT'))"
    for first, policy in (("assert 'torch' not in sys.modules", "3000"), ("import torch", "None")):
        command = [sys.executable, "-c", code.format(first)]  # an interpreter: what is imported when
        environment = {"PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert (done.stdout.strip(), done.stderr) == (policy, "")
