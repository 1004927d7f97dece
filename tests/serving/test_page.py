"""The page in a real Chromium: each task by mouse and by keyboard, refusals in words, no request to another host."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diptych.serving.service import server as serving
from diptych.serving.service.limits import Limits
from diptych.serving.service.pictures import PictureGallery
from diptych.serving.service.service import Service
from diptych.systems import add_task
from tests.journeys.broken_off import BROKEN_OFF
from tests.service import make_model, picture
from tests.tables import added

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
    pytest.mark.slow,
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Service]]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "gallery").mkdir()
    for colour in ("red", "green", "blue"):
        (folder / "gallery" / f"{colour}.png").write_bytes(picture(colour))
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    models = {"one": make_model(folder / "one"), "two": make_model(folder / "two", ["word"], seed=2)}
    service = Service(models, PictureGallery(folder / "gallery"), Limits(queue=4))
    with started(service) as address:
        yield address, service
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@contextmanager
def started(service: Service) -> Iterator[str]:
    """The address of a service that runs until the end."""
    bound, ready = serving.bind("127.0.0.1", 0), threading.Event()
    server = serving.make_server(service, ready=ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    assert ready.wait(20)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    thread.join(20)
    bound.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def page(browser: Any, served: tuple[str, Service]) -> Iterator[Any]:
    """The page as it opens; it may ask nobody else, and nothing may be wrong in its console."""
    yield from opened(browser, served[0])


def opened(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    context = browser.new_context(reduced_motion="reduce", **options)
    page = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if "Content Security Policy" in line.text else None)
    page.goto(address)
    page.wait_for_selector("[role=tab]")
    yield page
    assert not [url for url in asked if not url.startswith((address, "blob:", "data:"))]
    assert not wrong
    context.close()


def choose_picture(page: Any, content: bytes | None = None, name: str = "a.png") -> None:
    page.set_input_files("#file", {"name": name, "mimeType": "image/png", "buffer": content or picture()})


def done(page: Any) -> str:
    sync_api.expect(page.locator("#status")).to_contain_text("Done", timeout=20_000)
    return str(page.inner_text("#results"))


FIELDS = {
    "caption": {},
    "ask": {"question": "what colour is the dog"},
    "ground": {"expression": "the dog"},
    "choose": {"question": "what is it", "answers": "a dog\na kite"},
    "verify": {"statement": "the dog is red"},
    "search": {"query": "a red kite"},
}
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
    if task != "search":
        page.keyboard.press("Shift+Tab")
        assert page.evaluate("document.activeElement.parentElement.id") == "examples"
        page.keyboard.press("Enter")
        page.wait_for_selector("#chosen:not([hidden])")
    for name, value in FIELDS[task].items():
        press_until(page, f"#field-{name}")
        page.keyboard.type(value)
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


def press_until(page: Any, selector: str) -> None:
    for _ in range(60):
        if page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by Tab")


def test_a_word_lights_up_its_regions_and_a_region_its_words(page, served):
    choose_picture(page)
    page.click("#go")
    done(page)
    words, regions = (
        page.locator(".answer").first.locator(".words button"),
        page.locator(".answer").first.locator(".region"),
    )
    assert words.count() > 0
    assert regions.count() > 0
    for number in range(words.count()):
        words.nth(number).hover()
        assert "lit" in words.nth(number).get_attribute("class")
        assert page.locator(".answer").first.locator(".words ~ .note").first.inner_text().count("“") >= 1
    for number in range(regions.count()):
        regions.nth(number).focus()
        assert "lit" in regions.nth(number).get_attribute("class")
        name = regions.nth(number).get_attribute("aria-label").partition(", confidence")[0]
        assert f"{name} weighed on" in page.locator(".answer").first.inner_text()


def test_two_models_stand_side_by_side_or_one_alone(page):
    choose_picture(page)
    page.click("#go")
    done(page)
    assert page.locator("#results h3").all_inner_texts() == ["one", "two"]
    left, right = (page.locator(".answer").nth(number).bounding_box() for number in (0, 1))
    assert left["y"] == right["y"]
    assert left["x"] < right["x"]
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
    assert "“a.txt” is not a picture" in page.inner_text("#error")


def test_what_is_missing_is_told_and_focused(page):
    page.click("#go")
    assert page.inner_text("#error") == "Choose a picture first."
    choose_picture(page)
    page.click("#tab-ask")
    page.click("#go")
    assert "Question" in page.inner_text("#error")
    assert page.evaluate("document.activeElement.id") == "field-question"


def test_a_full_queue_is_told_in_words(page, served):
    from diptych.serving.service.worker import Job

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


def test_pasted_and_dropped_pictures_are_taken(page):
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
        page.wait_for_selector("#chosen:not([hidden])")
        page.click("#go")
        done(page)


def test_a_link_restores_the_settings(page, browser, served):
    page.click("#tab-verify")
    page.fill("#field-statement", "there are two dogs & a kite")
    page.click("#link")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("#tab-verify[aria-selected=true]")
    assert page.input_value("#field-statement") == "there are two dogs & a kite"


def test_what_was_asked_comes_back_by_a_click(page):
    choose_picture(page)
    page.click("#tab-ask")
    for question in ("what colour is the dog", "what is the kite"):
        page.fill("#field-question", question)
        page.click("#go")
        sync_api.expect(page.locator("#visit")).to_contain_text(question, timeout=20_000)
    page.locator("#visit button").last.click()
    assert page.locator("#results .canvas img").count() == 1
    assert page.locator("#visit li").count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_no_fault_of_access_at_either_width_and_in_either_light(browser, served, scheme, width, tmp_path_factory):
    axe = axe_core(tmp_path_factory)
    for page in opened(
        browser, served[0], color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True
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
