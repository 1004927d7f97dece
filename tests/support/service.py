"""A small untrained model that answers every task, and a service of it that is asked without a network."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import torch
from PIL import Image

from diptych.data.store.tokens import Tokens
from diptych.inference.predictor import Predictor
from diptych.runs.folder import Architecture, ModelFolder
from diptych.systems import SYSTEMS, find_recipe
from diptych.tasks.answers import UNKNOWN, Answers
from tests.support import toy

if TYPE_CHECKING:
    from diptych_serve.service.service import Service


TOKENS = Tokens.train(["a red kite over a beach", "what colour is the dog"], 80)
ANSWERS = Answers((UNKNOWN, "red", "blue", "two", "yes", "no", "dog"))
HEADS = ("word", "answer", "region_score", "choice", "nlvr", "match")
SIZES = {"width": 32, "heads": 2, "ffn": 64, "positions": 48, "max_regions": 8, "layers": 1, "init_std": 0.3}


def make_model(folder: Path, heads: Iterable[str] = HEADS, seed: int = 1) -> Predictor:
    """Unified VLP with a head for each task; its model folder lies in `folder`."""
    detector = toy.detector()
    torch.manual_seed(seed)
    classes = len(detector.contract.class_names)
    config = SYSTEMS["unified-vlp"].resolved(
        vocabulary=TOKENS.vocabulary, feature_size=16, classes=classes, answers=len(ANSWERS.names), **SIZES
    )
    architecture = Architecture(system="unified-vlp", config=config, heads=tuple(heads))
    detector.save(folder / "seen")
    made = ModelFolder(
        folder / "made",
        architecture.build().eval(),
        architecture,
        TOKENS,
        detector.contract,
        recipe=find_recipe("unified-vlp/small/caption", []),
        answers=ANSWERS,
        detector=folder / "seen",
    )
    return Predictor(made.save(folder / "model"))


@contextmanager
def listening(service: Service) -> Iterator[tuple[str, int]]:
    """A real server in a thread; the address that it listens on."""
    from diptych_serve.service.server import bind, make_server

    bound, ready = bind("127.0.0.1", 0), threading.Event()
    server = make_server(service, ready=ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    assert ready.wait(20)
    try:
        yield bound.getsockname()
    finally:
        server.should_exit = True
        thread.join(20)
        bound.close()
    assert not thread.is_alive()


def picture(colour: str = "red", size: tuple[int, int] = (48, 40), kind: str = "PNG") -> bytes:
    noise = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8)
    image = Image.fromarray(noise)
    image.paste(colour, (4, 4, 20, 30))
    content = io.BytesIO()
    image.save(content, kind)
    return content.getvalue()


class Local:
    """A service that is asked in this process, as from http://localhost."""

    def __init__(self, service: Service, token: str | None = None) -> None:
        from diptych_serve.service.app import make_app
        from diptych_serve.service.guard import RequestGuard

        self.service = service
        self.app = RequestGuard(make_app(service), token)
        if not service.worker.alive:
            service.worker.start()

    def get(self, path: str, **given: Any) -> httpx2.Response:
        return self.ask("GET", path, **given)

    def post(self, path: str, image: bytes | None = None, **given: Any) -> httpx2.Response:
        if image is not None:
            given["files"] = {"image": ("a.png", image)}
        return self.ask("POST", path, **given)

    def ask(self, method: str, path: str, **given: Any) -> httpx2.Response:
        return asyncio.run(self.together([(method, path, given)]))[0]

    async def together(self, asked: list[tuple[str, str, dict[str, Any]]]) -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=self.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await asyncio.gather(*(client.request(method, path, **given) for method, path, given in asked))


def problem(answer: httpx2.Response) -> dict[str, Any]:
    """The body of a refusal, of which nothing may be missing."""
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = json.loads(answer.content)
    assert found["status"] == answer.status_code
    assert found["title"]
    assert found["detail"]
    assert "Traceback" not in answer.text
    return found


def hold(local: Local, until: threading.Event) -> None:
    """The worker is kept busy by a request of ours, until the event."""
    from diptych_serve.service.worker import Job

    worker, answer = local.service.worker, local.service.worker.answer_batch
    begun = threading.Event()

    def waiting(jobs: Any) -> None:
        worker.answer_batch = answer
        begun.set()
        until.wait(20)

    worker.answer_batch = waiting
    worker.submit(Job("caption", "none", None))
    assert begun.wait(5)
