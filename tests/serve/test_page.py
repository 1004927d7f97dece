"""The page in a real Chromium: each task by mouse and by keyboard, refusals in words, no request to another host."""

from __future__ import annotations

import re
import threading

import pytest

from diptych.systems import add_task
from diptych_serve.service.service import Service
from tests.support.broken_off import BROKEN_OFF
from tests.support.chromium import (
    FIELDS,
    PHONE,
    choose_picture,
    done,
    needs_chromium,
    opened,
    press_until,
    started,
    sync_api,
)
from tests.support.service import make_model, picture
from tests.support.tables import added

pytestmark = needs_chromium

SHOWN = {"caption": "one", "ask": "The likeliest answers", "ground": "Found", "choose": "Answers", "verify": "sure",
         "search": "the best first"}  # fmt: skip


@pytest.mark.parametrize("task", FIELDS)
def test_each_task_by_mouse(page, task):
    page.click(f"#tab-{task}")
    if task != "search":
        choose_picture(page)
    for name, value in FIELDS[task].items():
        page.fill(f"#field-{name}", value)
    page.click("#go")
    assert SHOWN[task] in done(page)
    assert page.locator("#visit li").count() == 1
    assert page.inner_text("#error") == ""
    images = page.evaluate("[...document.querySelectorAll('#results img')].map(async (one) => { await one.decode(); })")
    assert images is not None


@pytest.mark.parametrize("task", FIELDS)
def test_each_task_by_keyboard(page, task):
    """Nothing but keys: an example stands for a picture, as files are chosen by the browser's own window."""
    press_until(page, "[role=tab][aria-selected=true]")
    while page.evaluate("document.activeElement.id") != f"tab-{task}":
        page.keyboard.press("ArrowRight")
    for name, value in FIELDS[task].items():
        press_until(page, f"#field-{name}")
        page.keyboard.type(value)
    if task != "search":
        press_until(page, "#examples button", "Shift+Tab")
        page.keyboard.press("Enter")  # asks at once
        assert SHOWN[task] in done(page)
        page.evaluate("document.querySelector('#status').textContent = ''")
    press_until(page, "#go")
    page.keyboard.press("Enter")
    assert SHOWN[task] in done(page)


def test_a_task_that_stands_in_the_tests_folder_is_asked_on_the_page(browser, tmp_path, monkeypatch):
    added(monkeypatch, lambda: add_task(BROKEN_OFF))
    with started(Service({"toy": make_model(tmp_path, ["nlvr"])})) as address:
        for page in opened(browser, address):
            page.click("#tab-break")
            assert page.inner_text("#tab-break") == "Whole"
            choose_picture(page)
            page.fill("#field-sentence", "a red dog")
            page.click("#go")
            done(page)
            assert page.inner_text("#results .verdict") in ("whole", "broken off")
            assert page.inner_text("#visit li span").endswith(": a red dog")


def test_a_word_lights_up_its_regions_and_a_region_its_words(page, served):
    choose_picture(page)
    page.uncheck("#models input[value=two]")
    page.click("#go")
    done(page)
    words, regions, note = page.locator(".words button"), page.locator("#boxes .region"), page.locator(".words + .note")
    assert words.count() > 0
    assert regions.count() > 0
    page.click("#regions")
    assert page.get_attribute("#regions", "aria-pressed") == "true"
    label = regions.first.locator("i").text_content()
    assert re.fullmatch(r"(dog|bird) [\d.]+ %", label), "regions have the labels and scores of the detector"
    for number in range(words.count()):
        words.nth(number).hover()
        assert "lit" in words.nth(number).get_attribute("class")
        assert note.inner_text().count("“") >= 1
    assert page.locator(".region:visible").count() == regions.count()
    for number in range(regions.count()):
        regions.nth(number).focus()
        assert "lit" in regions.nth(number).get_attribute("class")
        name = re.sub(r" [\d.]+ %$", "", regions.nth(number).get_attribute("aria-label"))
        assert note.inner_text().startswith((f"{name} makes", f"{name} alone changes no word"))
    assert "nats" not in page.inner_text("body")
    page.click("#regions")
    assert page.get_attribute("#regions", "aria-pressed") == "false"
    assert page.locator(".region.idle:not(.lit):visible").count() == 0, "regions that change no word are not drawn"
    assert page.inner_text(".words") == " ".join(words.all_inner_texts()), "one space between words"


def test_a_tapped_word_shows_its_regions_until_another_is_tapped(browser, served):
    for page in opened(browser, served[0], viewport=PHONE, has_touch=True, is_mobile=True):
        choose_picture(page)
        page.uncheck("#models input[value=two]")
        page.tap("#go")
        done(page)
        first, second = page.locator(".words button").nth(0), page.locator(".words button").nth(1)
        first.tap()
        assert "lit" in (first.get_attribute("class") or "")
        assert first.inner_text() in page.locator(".words + .note").inner_text()
        second.tap()
        assert "lit" in (second.get_attribute("class") or "")
        assert "lit" not in (first.get_attribute("class") or "")


def test_two_models_answer_side_by_side_or_one_alone(page):
    choose_picture(page)
    page.click("#go")
    done(page)
    assert page.locator("#results h2").all_inner_texts() == ["one", "two"]
    left, right = (page.locator(".answer").nth(number).bounding_box() for number in (0, 1))
    assert left["y"] == right["y"]
    assert left["x"] < right["x"]
    shown = page.locator("#boxes .region").element_handles()
    page.locator(".answer").nth(1).locator(".words button").first.hover()
    assert not any(one.evaluate("(node) => node.isConnected") for one in shown), "the stage shows the other's regions"
    said = [words.get_attribute("aria-label") for words in page.locator(".words").all()]
    assert page.inner_text("#visit li span") == f"Caption: {' / '.join(said)}"
    page.uncheck("#models input[value=two]")
    page.click("#go")
    sync_api.expect(page.locator("#visit li")).to_have_count(2, timeout=20_000)
    assert page.locator(".answer").count() == 1


def test_a_refused_picture_is_told_in_words(page):
    choose_picture(page, picture()[:200])
    page.click("#go")
    sync_api.expect(page.locator("#error")).to_contain_text("may be cut short", timeout=20_000)
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"words"})
    assert "“a.txt” is not an image" in page.inner_text("#error")


def test_what_is_missing_is_told_and_focused(page):
    page.click("#go")
    assert page.inner_text("#error") == "Choose an image first."
    choose_picture(page)
    page.click("#tab-ask")
    page.click("#go")
    assert "Question" in page.inner_text("#error")
    assert page.evaluate("document.activeElement.id") == "field-question"


def test_a_full_queue_is_told_in_words(page, served):
    from diptych_serve.service.worker import Job

    worker, held, begun = served[1].worker, threading.Event(), threading.Event()
    answer = worker.answer_batch
    worker.answer_batch = lambda jobs: begun.set() or held.wait(20)
    jobs = [Job("caption", "one", None) for _ in range(5)]
    worker.submit(jobs[0])
    assert begun.wait(5)
    for job in jobs[1:]:
        worker.submit(job)
    try:
        choose_picture(page)
        page.click("#go")
        sync_api.expect(page.locator("#error")).to_contain_text(
            "The service is busy: the queue is full", timeout=20_000
        )
        assert "Try again in 1 s" in page.inner_text("#error")
    finally:
        worker.answer_batch = answer
        held.set()


def test_pasted_and_dropped_pictures_are_captioned_at_once(page):
    for event in ("paste", "drop"):
        page.reload()
        page.wait_for_selector("[role=tab]")
        page.evaluate(
            """async ([kind, bytes]) => {
                const moved = new DataTransfer();
                moved.items.add(new File([new Uint8Array(bytes)], "moved.png", { type: "image/png" }));
                const event = kind === "paste" ? new ClipboardEvent("paste", { clipboardData: moved, bubbles: true })
                    : new DragEvent("drop", { dataTransfer: moved, bubbles: true, cancelable: true });
                document.querySelector("#drop").dispatchEvent(event);
            }""",
            [event, list(picture())],
        )
        page.wait_for_selector("#stage:not([hidden])")
        done(page)
        assert page.locator(".answer .words").count() == 2


def test_a_link_restores_the_settings(page, browser, served):
    page.click("#tab-choose")
    page.fill("#field-question", "what is it & why")
    page.fill("#field-answers", "a dog\na kite")
    page.keyboard.press("Tab")
    page.wait_for_function("location.hash.includes('answers=')")
    address = page.evaluate("location.href")  # `page.url` follows later, by a message of the browser
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("#tab-choose[aria-selected=true]")
    assert page.input_value("#field-question") == "what is it & why"
    assert page.input_value("#field-answers") == "a dog\na kite"
