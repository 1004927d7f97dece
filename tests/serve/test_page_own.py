"""The page of a user's own models in a real Chromium: title, examples, hits of a search, corrections."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.inference.predictor import Predictor
from diptych.runs.folder import open_model
from diptych.runtime.configs import derive
from diptych.tasks.interface import Explanation, Region
from diptych_serve.service.pictures import PictureGallery
from diptych_serve.service.service import Service
from tests.support.chromium import PHONE, WIDE, choose_picture, done, needs_chromium, opened, started
from tests.support.service import make_model, picture

pytestmark = needs_chromium

CARD = "---\nlicense: mit\n---\n\n# Our shop\n\nFinds [goods](https://a.test) on\nphotographs of shelves.\n\n## How\n"


def test_title_text_and_examples_are_those_of_the_model(browser, tmp_path):
    made = make_model(tmp_path, ["answer", "word"]).folder
    asks = derive(made.architecture, examples=("what colour is the dog", "how much is it"))
    saved = replace(made, architecture=asks).save(tmp_path / "shop")
    (saved.folder / "README.md").write_text(CARD)
    gallery = PictureGallery(tmp_path / "photos")
    (tmp_path / "photos" / "in").mkdir(parents=True)
    (tmp_path / "photos" / "in" / "ä one.png").write_bytes(picture())
    with started(Service({"shop": Predictor(open_model(saved.folder))}, gallery)) as address:
        for page in opened(browser, address):
            assert page.title() == page.inner_text("h1") == "Our shop"
            assert page.inner_text("#knows") == "Finds goods on photographs of shelves."
            assert page.locator("[role=tab]").all_inner_texts() == ["Caption", "Ask"], "no model searches"
            page.click("#tab-ask")
            assert page.locator(".chips button").all_inner_texts() == ["what colour is the dog", "how much is it"]
            assert page.get_attribute("#examples button", "title") == "in/ä one.png"
            page.locator("#examples button").click()
            page.locator(".chips button").first.click()
            assert "The likeliest answers" in done(page)
            assert page.inner_text(".asked") == "what colour is the dog"


def test_a_page_without_examples_offers_none(browser, tmp_path, monkeypatch):
    for room in ("diptych.inference.model_facts", "diptych_serve.service.service"):
        monkeypatch.setattr(f"{room}.is_drawn_world", lambda _: False)
    with started(Service({"toy": make_model(tmp_path, ["word"])})) as address:
        for page in opened(browser, address):
            assert page.inner_text("#drop-text") == "Drop an image here, paste one, or choose one."
            assert page.inner_text("#knows") == "It knows images like its training images."


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_hit_has_a_name_and_a_score_below_it_and_is_opened_and_asked_about(browser, served, size):
    for page in opened(browser, served[0], viewport=size):
        page.click("#tab-search")
        page.fill("#field-query", "a red kite")
        page.click("#go")
        done(page)
        hit = page.locator(".sheet li").first
        image, name, score = (hit.locator(one).bounding_box() for one in ("img", ".name", "span >> nth=1"))
        assert image["y"] + image["height"] <= name["y"]
        assert name["y"] + name["height"] <= score["y"]
        assert score["y"] + score["height"] <= hit.bounding_box()["y"] + hit.bounding_box()["height"]
        told = hit.locator(".name").inner_text()
        assert told in ("red.png", "green.png", "blue.png")
        found = page.request.get(served[0] + hit.locator("a").get_attribute("href"))
        assert (found.status, found.headers["content-type"]) == (200, "image/jpeg")
        hit.get_by_role("button").click()
        page.wait_for_selector(".words")
        assert page.get_attribute("#tab-caption", "aria-selected") == "true"
        assert told in page.get_attribute("#chosen", "alt")


def test_corrections_are_kept_and_downloaded_as_lines_for_training(page):
    page.uncheck("#models input[value=two]")
    choose_picture(page, name="a.png")
    done(page)
    for text in ("a dog", " a red dog. "):
        page.get_by_role("button", name="Correct this").click()
        page.fill(".correction input", text)
        page.locator(".correction button").click()
    page.click("#tab-ask")
    page.fill("#field-question", "what is it")
    page.click("#go")
    page.wait_for_selector(".answer table")
    page.get_by_role("button", name="Correct this").click()
    page.fill(".correction input", "a dog")
    page.locator(".correction button").click()
    page.reload()
    page.wait_for_selector("#download:visible")
    with page.expect_download() as found:
        page.get_by_role("button", name="Download 2 corrections").click()
    assert found.value.suggested_filename == "corrections.jsonl"
    assert [json.loads(line) for line in Path(found.value.path()).read_text("utf-8").splitlines()] == [
        {"image": "a.png", "captions": ["a red dog."]},
        {"image": "a.png", "question": "what is it", "answers": ["a dog"]},
    ]
    page.click("#clear")
    assert not page.is_visible("#visit-panel")


def test_regions_that_matter_are_drawn_once_and_signs_stand_as_in_the_text(page):
    boxes = ((1, 1, 20, 20), (1, 1, 20, 21), (30, 5, 9, 9))
    regions = tuple(Region(box=box, label="dog", score=0.5) for box in boxes)
    shown = Explanation(width=48, height=40, words=("a", "dog", "."), regions=regions,
                        weights=((0.0, 0.0, 0.0), (0.9, 0.9, 0.0), (0.0, 0.0, 0.0)))  # fmt: skip

    def answered(route):
        response = route.fetch()
        view = {**response.json(), "words": "A dog.", "explanation": shown.model_dump(mode="json")}
        route.fulfill(response=response, json=view)

    page.route("**/v1/caption", answered)
    page.uncheck("#models input[value=two]")
    choose_picture(page)
    done(page)
    assert page.inner_text(".words") == "a dog."
    assert page.locator(".region:visible").count() == 1, "the second covers the first, the third changes no word"
    assert page.locator(".region:visible i").inner_text() == "dog 50 %"
    page.click("#regions")
    assert page.locator(".region:visible").count() == 3
