"""The page in a real Chromium: examples, history, copies, cancel, drawer, /docs, sizes of screens, access."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from diptych_serve.service.service import Service
from tests.support.chromium import (
    FIELDS,
    PHONE,
    WIDE,
    choose_picture,
    done,
    needs_chromium,
    opened,
    press_until,
    started,
    sync_api,
)
from tests.support.service import make_model, picture

pytestmark = needs_chromium


def test_an_example_is_captioned_at_once_and_removed(page):
    page.locator("#examples button").nth(1).click()
    done(page)
    assert page.locator("#examples [aria-pressed=true]").count() == 1
    assert page.get_attribute("#examples button >> nth=1", "aria-pressed") == "true"
    page.click("#remove")
    assert page.locator("#stage:visible, .answer, #examples [aria-pressed=true]").count() == 0
    page.click("#go")
    assert page.inner_text("#error") == "Choose an image first."


def test_an_example_without_its_question_focuses_the_field(page):
    page.click("#tab-ask")
    page.locator("#examples button").first.click()
    sync_api.expect(page.locator("#field-question")).to_be_focused()
    assert page.inner_text("#error") == ""


def test_earlier_answers_come_back_by_a_click(page):
    page.click("#tab-ask")
    choose_picture(page)
    for question in ("what colour is the dog", "what is the kite"):
        page.fill("#field-question", question)
        page.click("#go")
        sync_api.expect(page.locator("#visit")).to_contain_text(question, timeout=20_000)
    page.locator("#visit li > button:first-child").last.click()
    assert page.input_value("#field-question") == "what colour is the dog"
    assert page.locator("#visit li").count() == 2
    page.click("#go")  # the image itself is there until the page is left
    sync_api.expect(page.locator("#visit li")).to_have_count(3, timeout=20_000)


def test_history_survives_a_reload_and_is_removed(page):
    for size in ((900, 600), (600, 900)):
        choose_picture(page, picture(size=size), "a&<b>.png")
        page.click("#go")
        done(page)
        page.evaluate("document.querySelector('#status').textContent = ''")
    words = page.locator(".words").first.inner_text()
    page.reload()
    page.wait_for_selector("#visit li")
    assert page.locator("#visit li").count() == 2
    page.locator("#visit li > button:first-child").first.click()
    assert page.locator(".words").first.inner_text() == words
    sizes = page.evaluate(
        "[document.querySelector('#chosen').naturalWidth, document.querySelector('#chosen').naturalHeight]"
    )
    assert sizes == [213, 320], "a small thumbnail, uncut"
    assert "choose the image again" in page.inner_text("#status")
    page.locator("#visit li > button:last-child").first.click()
    assert page.locator("#visit li").count() == 1
    page.click("#clear")
    page.reload()
    page.wait_for_selector("[role=tab]")
    assert not page.is_visible("#visit-panel")


@pytest.mark.parametrize("kept", ["{", "[1, null, {}]", '[{"task": "caption", "answers": [{"view": {}}]}]'])
def test_damaged_history_is_left_out(page, kept):
    page.evaluate("(kept) => localStorage.setItem('diptych-history-1', kept)", kept)
    page.reload()
    page.wait_for_selector("[role=tab]")
    choose_picture(page)
    page.click("#go")
    done(page)
    assert page.locator("#visit li").count() == 1


def test_history_is_bounded(page):
    choose_picture(page)
    page.click("#go")
    done(page)
    page.evaluate("""() => {
        const [one] = JSON.parse(localStorage.getItem("diptych-history-1"));
        localStorage.setItem("diptych-history-1", JSON.stringify(Array(40).fill(one)));
        localStorage.setItem("another", "x".repeat(5_000_000 - JSON.stringify(localStorage).length));
    }""")
    page.reload()
    page.wait_for_selector("#visit li")
    assert page.locator("#visit li").count() <= 24
    choose_picture(page)
    page.click("#go")
    done(page)
    assert 1 <= page.locator("#visit li").count() <= 24
    assert page.evaluate("JSON.parse(localStorage.getItem('diptych-history-1')).length") <= 24


def test_the_answer_its_json_and_its_command_are_copied(page, served, tmp_path):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#tab-ask")
    choose_picture(page, name='a"b.png')
    question = "what is 'it'; @/etc/passwd $HOME"
    page.fill("#field-question", question)
    page.click("#go")
    done(page)

    def copied(button: str) -> str:
        page.locator(".answer").first.get_by_role("button", name=button, exact=True).click()
        sync_api.expect(page.locator("#status")).to_contain_text("is copied")
        return str(page.evaluate("navigator.clipboard.readText()"))

    page.locator(".answer").first.get_by_role("button", name="JSON").click()
    answer = json.loads(page.locator(".answer pre").first.inner_text())
    assert copied("Copy") == answer["answer"]
    assert copied("Copy a link").startswith(served[0] + "/#task=ask&question=what+is")
    (tmp_path / 'a"b.png').write_bytes(picture())
    command = copied("Copy as curl")
    received = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    del answer["explanation"]
    assert json.loads(received) == answer
    assert answer["question"] == question
    page.locator("#examples button").first.click()  # it is no file of the user's
    sync_api.expect(page.locator(".answer pre").first).not_to_contain_text('a\\"b.png')
    done(page)
    command = copied("Copy as curl")
    received = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert json.loads(received)["question"] == question


def test_a_pasted_address_and_a_service_that_is_gone_are_refused_in_words(browser, served):
    paste = """(text) => { const data = new DataTransfer(); data.setData("text/plain", text);
        document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true })); }"""
    for page in opened(browser, served[0]):
        page.evaluate(paste, "https://example.org/a.png")
        assert page.inner_text("#error").startswith("This page fetches no addresses; copy the image itself")
        page.route("**/v1/forms", lambda route: route.abort())
        page.reload()
        sync_api.expect(page.locator("#error")).to_contain_text("is the service still running?")
        assert page.locator("#go:visible").count() == 0, "a button without an act"


def test_labels_do_not_cover_each_other(browser, served):
    labels = """() => [...document.querySelectorAll("#boxes i")].map((one) => one.getBoundingClientRect().toJSON())"""
    for page in opened(browser, served[0], viewport=PHONE):
        choose_picture(page)
        page.click("#go")
        done(page)
        seen = [one for one in page.evaluate(labels) if one["width"]]
        assert seen
        for number, one in enumerate(seen):
            assert not any(
                one["left"] < other["right"] and other["left"] < one["right"]
                and one["top"] < other["bottom"] and other["top"] < one["bottom"]
                for other in seen[:number]
            )  # fmt: skip


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_a_request_is_cancelled(page, served, how):
    worker, held = served[1].worker, threading.Event()
    answer = worker.answer_batch
    worker.answer_batch = lambda jobs: held.wait(20) and answer(jobs)
    try:
        choose_picture(page)  # asks at once
        page.wait_for_selector("#busy:visible")
        page.click("#cancel") if how == "button" else page.keyboard.press("Escape")
        assert page.inner_text("#status") == "Cancelled."
        assert page.locator("#busy:visible, #cancel:visible").count() == 0
    finally:
        worker.answer_batch = answer
        held.set()
    page.click("#go")
    done(page)
    assert page.inner_text("#error") == ""
    assert page.locator("#visit li").count() == 1


def test_models_are_in_a_drawer_with_version_and_licence(page, served):
    assert not page.is_visible("#about")
    page.click("#open-drawer")
    text = page.inner_text("#drawer")
    version = served[1].models["one"].folder.weights_checksum
    assert f"{version:08x}" in text
    assert "not stated" in text
    page.keyboard.press("Escape")
    assert not page.is_visible("#about")


def test_the_theme_is_chosen_and_kept(page):
    def dark() -> bool:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) < 300

    assert not dark()
    page.click("#theme")
    assert dark()
    page.reload()
    page.wait_for_selector("[role=tab]")
    assert dark()


def test_tasks_without_a_model_are_named_with_how_to_serve_them(browser, tmp_path):
    with started(Service({"toy": make_model(tmp_path, ["word"])})) as address:
        for page in opened(browser, address):
            assert page.locator("[role=tab]").all_inner_texts() == ["Caption"]
            page.click("#unserved summary")
            text = page.inner_text("#unserved")
            assert "Ask, " in text
            assert "diptych finetune vqa --data STORE --model RUN --out runs/vqa" in text
            assert "diptych serve runs/retrieval --images FOLDER" in text


def test_an_unfamiliar_image_has_a_banner(page):
    def unfamiliar(route: Any) -> None:
        response = route.fetch()
        view = response.json()
        route.fulfill(response=response, json={**view, "answer": {**view["answer"], "familiar": False}})

    page.route("**/v1/caption", unfamiliar)
    choose_picture(page)
    page.click("#go")
    done(page)
    assert page.locator(".banner").first.inner_text().startswith("This image is unlike what this model was trained on")


def test_a_word_that_the_model_does_not_know_is_named(page):
    page.click("#tab-ask")
    choose_picture(page)
    page.fill("#field-question", "what is the 麒麟")
    page.click("#go")
    done(page)
    assert page.locator(".banner").first.inner_text() == "The model does not know 麒麟."


@pytest.fixture(scope="module")
def one_model(tmp_path_factory):
    with started(Service({"toy": make_model(tmp_path_factory.mktemp("one"))})) as address:
        yield address


@pytest.mark.parametrize("task", ["caption", "ask", "ground"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_result_is_in_view_without_scrolling(browser, one_model, size, task):
    for page in opened(browser, one_model, viewport=size):
        service_of_drawings(page)
        page.click(f"#tab-{task}")
        choose_picture(page, picture(size=(600, 600)))
        for name, value in FIELDS[task].items():
            page.fill(f"#field-{name}", value)
        # not page.click: a click that Playwright tries anew scrolls the button to the upper edge
        page.locator("#go:visible:enabled").evaluate("button => button.click()")
        done(page)
        assert page.evaluate("window.scrollY") == 0
        image, go = page.locator("#chosen").bounding_box(), page.locator("#go").bounding_box()
        shown = page.locator(".answer .words, .answer .verdict").first.bounding_box()
        lowest = size["height"] if size is WIDE else go["y"]  # the button stays at the lower edge of a phone
        assert shown["y"] + shown["height"] <= lowest
        assert 0 <= go["y"] <= size["height"] - go["height"]
        assert min(image["width"], image["height"]) >= 200, "the image is large enough to be looked at"
        if size is WIDE:
            assert image["x"] + image["width"] <= shown["x"], "image on the left, result on the right"


def operation(page: Any, path: str) -> Any:
    section = page.locator(f"section:has(h2 code:text-is('{path}'))")
    section.locator("summary").click()
    return section


def test_a_request_with_an_image_is_tried_in_the_documentation(docs, served):
    section = operation(docs, "POST /v1/choose")
    assert f"{served[0]}/v1/choose" in section.locator("pre").first.inner_text(), "the real port"
    section.locator("[name=image]").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": picture()})
    section.locator("[name=question]").fill("what is it")
    section.locator("[name=answers]").fill("a dog\na <b>kite</b>")
    section.get_by_role("button", name="Send").click()
    sync_api.expect(section.get_by_role("status")).to_contain_text("200", timeout=20_000)
    answer = json.loads(section.locator("form pre").inner_text())
    assert answer["answer"] in ("a dog", "a <b>kite</b>")
    section.locator("[name=answers]").fill("one alone")
    section.get_by_role("button", name="Send").click()
    sync_api.expect(section.get_by_role("status")).to_contain_text("422", timeout=20_000)
    assert "detail" in section.locator("form pre").inner_text()


def test_json_parameters_and_images_are_tried_by_keyboard(docs):
    section = operation(docs, "POST /v1/search")
    section.locator("[name=query]").focus()
    docs.keyboard.type("a red kite")
    press_until(docs, "[name=top_k]")
    docs.keyboard.type("2")
    docs.keyboard.press("Enter")
    sync_api.expect(section.get_by_role("status")).to_contain_text("200", timeout=20_000)
    hits = json.loads(section.locator("form pre").inner_text())["hits"]
    assert len(hits) == 2
    section = operation(docs, "GET /v1/pictures/{name}")
    section.locator("[name=name]").fill(hits[0]["picture"])
    section.get_by_role("button", name="Send").click()
    sync_api.expect(section.locator("img")).to_be_visible(timeout=20_000)
    section.locator("[name=name]").fill("../models?")
    section.get_by_role("button", name="Send").click()
    sync_api.expect(section.get_by_role("status")).to_contain_text("404", timeout=20_000)


def test_every_operation_of_the_documentation_is_tried_without_a_fault(docs, tmp_path_factory):
    for one in docs.locator("summary").all():
        one.click()
    for form in docs.locator("form.try").all():
        if not form.locator("[required]").count():
            form.get_by_role("button", name="Send").click()
            sync_api.expect(form.get_by_role("status")).to_contain_text("200", timeout=20_000)


def service_of_drawings(page: Any) -> None:
    """Six examples, as a service of the drawn world has."""
    page.evaluate("""() => {
        const strip = document.querySelector("#examples");
        strip.hidden = false;
        for (let one = 0; one < 6; one++) strip.append(document.createElement("button"));
    }""")


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1400, "light"),
        (320, "dark"),
        *(pytest.param(*one, marks=pytest.mark.thorough)
          for one in ((1400, "dark"), (390, "light"), (390, "dark"), (320, "light"))),
    ],
)  # fmt: skip
def test_no_fault_of_access_at_either_width_and_in_either_light(browser, served, scheme, width, tmp_path_factory):
    axe = axe_core(tmp_path_factory)
    for page in opened(
        browser, served[0], color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True
    ):
        choose_picture(page)
        page.add_script_tag(path=axe)
        for task in ("ask", "caption"):
            page.click(f"#tab-{task}")
            if task == "ask":
                page.fill("#field-question", "what colour is the dog")
            page.click("#go")
            done(page)
            found = page.evaluate("axe.run()")
            faults = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]]
            assert not faults
        page.click("#open-drawer")
        assert not page.evaluate("axe.run('#drawer')")["violations"]
        page.keyboard.press("Escape")
        page.goto(f"{served[0]}/docs")
        page.add_script_tag(path=axe)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert not page.evaluate("axe.run()")["violations"]
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing is cut off"


def axe_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From npm, at test time alone: its licence (MPL 2.0) is not ours."""
    folder = tmp_path_factory.getbasetemp() / "axe"
    found = folder / "package" / "axe.min.js"
    if not found.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm on this machine, which brings axe-core: apt-get install npm")
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            [npm, "pack", "axe-core@4", "--silent"], cwd=folder, capture_output=True, text=True, check=False
        )
        archives = list(folder.glob("*.tgz"))
        if done.returncode or not archives:
            pytest.skip(f"npm could not bring axe-core: {done.stderr[-200:]}")
        shutil.unpack_archive(archives[0], folder, filter="data")
    return found
