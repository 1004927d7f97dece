"""The service's queue: full, late, of clients that are gone, and stopped."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest
import torch

from diptych.inference.predictor import Predictor
from diptych.vision.decoder import Decoders
from diptych_serve.service.limits import Limits
from diptych_serve.service.problems import RequestRefused
from diptych_serve.service.service import Service
from diptych_serve.service.worker import Job, Worker
from tests.support.service import Local, hold, listening, make_model, picture, problem


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return make_model(tmp_path_factory.mktemp("service"))


def test_pictures_that_wait_have_so_many_bytes_and_those_that_left_have_none():
    worker = Worker(lambda jobs: None, Limits(waiting_bytes=24))
    jobs = [Job("caption", "toy", None, torch.zeros(3, 2, 2, dtype=torch.uint8)) for _ in range(4)]
    worker.submit(jobs[0])
    worker._take()
    worker.submit(jobs[1])
    worker.submit(jobs[2])
    with pytest.raises(RequestRefused, match="the queue is full: 2 requests wait"):
        worker.admit(1)
    jobs[1].answered.cancel()
    worker.submit(jobs[3])


def test_a_full_queue_is_told_with_when_to_ask_again(model):
    local, held = Local(Service({"toy": model}, limits=Limits(queue=2))), threading.Event()
    hold(local, held)

    async def four() -> list[Any]:
        asked = [("POST", "/v1/caption", {"files": {"image": ("a.png", picture())}})] * 4
        sending = asyncio.ensure_future(local.together(asked))
        await asyncio.sleep(0.5)
        held.set()
        return await sending

    answers = asyncio.run(four())
    assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503]
    for answer in answers:
        if answer.status_code == 503:
            assert "the queue is full" in problem(answer)["detail"]
            assert int(answer.headers["retry-after"]) >= 1
    local.service.worker.stop()


def test_what_waits_longer_than_the_deadline_is_refused(model):
    local, held = Local(Service({"toy": model}, limits=Limits(deadline=0.2))), threading.Event()
    hold(local, held)
    begun = time.monotonic()
    late = local.post("/v1/caption", picture())
    assert late.status_code == 503
    assert "deadline" in problem(late)["detail"]
    assert time.monotonic() - begun < 5
    held.set()
    local.service.worker.stop()


def test_what_is_late_when_its_turn_comes_is_refused_and_not_computed():
    worker = Worker(lambda jobs: None, Limits())
    late, job = Job("caption", "toy", None, expires=time.monotonic() - 1), Job("caption", "toy", None)
    worker.submit(late)
    worker.submit(job)
    assert worker._take() == [job]
    with pytest.raises(RequestRefused, match="deadline"):
        late.answered.result(0)


def test_pictures_that_wait_to_be_opened_are_of_the_queue_and_have_its_deadline(model, monkeypatch):
    local = Local(Service({"toy": model}, limits=Limits(queue=2, deadline=0.3, decoders=1)))
    held, opened = threading.Event(), list[bytes]()

    def opening(_: Decoders, content: bytes, *__: Any) -> None:
        opened.append(content)
        held.wait(20)

    monkeypatch.setattr(Decoders, "read", opening)
    asked = [("POST", "/v1/caption", {"files": {"image": ("a.png", picture())}})] * 4
    answers = [problem(answer)["detail"] for answer in asyncio.run(local.together(asked))]
    held.set()
    local.service.stop()
    assert sorted("the queue is full: 2 requests wait" in one for one in answers) == [False, False, True, True]
    assert sum("deadline" in one for one in answers) == 2
    assert len(opened) == 1, "nobody waits for the second"


def test_a_client_that_is_gone_is_dropped_from_the_queue(model):
    local, held = Local(Service({"toy": model})), threading.Event()
    hold(local, held)
    form = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n' + picture() + b"\r\n--x--\r\n"
    messages = [{"type": "http.request", "body": form, "more_body": False}, {"type": "http.disconnect"}]
    headers = [(b"host", b"localhost"), (b"content-type", b"multipart/form-data; boundary=x")]
    scope = {"type": "http", "method": "POST", "path": "/v1/caption", "headers": headers, "query_string": b""}
    sent: list[Any] = []

    async def receive() -> Any:
        if len(messages) == 1:
            while not len(local.service.worker):
                await asyncio.sleep(0.01)
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(local.app(scope, receive, send))
    assert sent[0]["status"] == 499
    batches: list[int] = []
    local.service.worker._observe = batches.append
    held.set()
    while len(local.service.worker):
        time.sleep(0.01)
    local.service.worker.stop()
    assert batches == [], "nothing is computed for nobody"


def test_what_waits_when_the_service_is_stopped_is_refused(model):
    local, held = Local(Service({"toy": model})), threading.Event()
    assert local.get("/readyz").json() == {"status": "ready"}
    hold(local, held)
    job = Job("caption", "toy", None)
    local.service.worker.submit(job)
    held.set()
    local.service.worker.stop()
    assert problem(local.get("/readyz"))["status"] == 503
    assert local.get("/healthz").status_code == 200
    assert problem(local.post("/v1/caption", picture()))["status"] == 503


def test_a_client_that_goes_in_the_middle_of_a_body_is_no_fault(model, caplog):
    with listening(Service({"toy": model})) as address, socket.create_connection(address) as one:
        one.sendall(b"POST /v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        time.sleep(0.2)
    assert "a fault of Diptych" not in caplog.text
