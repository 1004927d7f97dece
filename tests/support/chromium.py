"""A service and its page in a real Chromium, for tests; `needs_chromium` marks them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.service import make_model, picture

if TYPE_CHECKING:
    from diptych_serve.service.service import Service


sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
    pytest.mark.slow,
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


WIDE, PHONE = {"width": 1400, "height": 900}, {"width": 390, "height": 844}
FIELDS = {
    "caption": {},
    "ask": {"question": "what colour is the dog"},
    "ground": {"expression": "the dog"},
    "choose": {"question": "what is it", "answers": "a dog\na kite"},
    "verify": {"statement": "the dog is red"},
    "search": {"query": "a red kite"},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Service]]:
    from diptych_serve.service.limits import Limits
    from diptych_serve.service.pictures import PictureGallery
    from diptych_serve.service.service import Service

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
    from diptych_serve.service import server as serving

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
        made.new_context(reduced_motion="reduce").new_page()  # keeps its process
        yield made
        made.close()


@pytest.fixture
def page(browser: Any, served: tuple[str, Service]) -> Iterator[Any]:
    """The page as it opens; it may ask nobody else, and nothing may be wrong in its console."""
    yield from opened(browser, served[0])


def opened(
    browser: Any, address: str, ready: str = "[role=tab]", viewport: Any = None, **options: Any
) -> Iterator[Any]:
    """A page in the browser's first context, which is left as it was found, or in one with `options`.

    A context of its own takes a second.
    """
    context = browser.new_context(reduced_motion="reduce", **options) if options else browser.contexts[0]
    page = context.new_page()
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if "Content Security Policy" in line.text else None)
    if viewport is not None:
        page.set_viewport_size(viewport)
    page.goto(address)
    page.wait_for_selector(ready)
    try:
        yield page
        own = address.removesuffix("/docs")
        assert not [url for url in asked if not url.startswith((own + "/", f"blob:{own}/", "data:"))]
        assert not wrong
    finally:
        context.clear_permissions()
        page.evaluate("localStorage.clear()")
        (context if options else page).close()


def choose_picture(page: Any, content: bytes | None = None, name: str = "a.png") -> None:
    page.set_input_files("#file", {"name": name, "mimeType": "image/png", "buffer": content or picture()})


def done(page: Any) -> str:
    sync_api.expect(page.locator("#status")).to_contain_text("Done", timeout=20_000)
    return str(page.inner_text("#results"))


@pytest.fixture
def docs(browser: Any, served: tuple[str, Service]) -> Iterator[Any]:
    """/docs, which asks no other host either."""
    yield from opened(browser, served[0] + "/docs", "summary")


def press_until(page: Any, selector: str, key: str = "Tab") -> None:
    for _ in range(60):
        if page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{selector} is not reached by Tab")
