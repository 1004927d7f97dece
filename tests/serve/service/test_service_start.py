"""What a service knows of its models before anybody asks, and how large its batches become."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import replace

import pytest

from diptych.api.model import load
from diptych_serve.service.limits import Limits
from diptych_serve.service.server import bind
from diptych_serve.service.service import Service
from tests.support.first_line import first_line
from tests.support.service import Local, make_model


def test_scores_are_those_of_the_best_validation_wherever_the_folder_is_copied(tmp_path):
    made = make_model(tmp_path)
    replace(made.folder, validation={"CIDEr": 20.04, "BLEU-1": 3.0}).save(tmp_path / "copy")
    local = Local(Service({"toy": load(tmp_path / "copy").predictor}))
    (told,) = local.get("/v1/models").json()["models"]
    assert told["scores"] == "validation: CIDEr 20.0, BLEU-1 3.0"
    assert told["recipe"] == "unified-vlp/small/caption"
    local.service.worker.stop()


def test_an_answer_is_sent_at_once():
    """Without TCP_NODELAY the body waits for the acknowledgement of the head, which clients hold back for 40 ms."""

    async def delays() -> list[int]:
        seen: list[int] = []

        async def meet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with bind("127.0.0.1", 0) as bound:
            async with await asyncio.start_server(meet, sock=bound):
                reader, writer = await asyncio.open_connection(*bound.getsockname())
                await reader.read()
                writer.close()
        return seen

    (without,) = asyncio.run(delays())
    assert without


def test_a_model_without_a_detector_is_told_before_it_is_served(tmp_path):
    import shutil

    from diptych.runtime.errors import ServingError

    make_model(tmp_path)
    shutil.rmtree(tmp_path / "model" / "detector")
    with pytest.raises(ServingError, match="has no detector/ folder"):
        Service({"toy": load(tmp_path / "model").predictor}).warm()


def test_a_batch_waits_to_become_as_large_as_the_last_and_no_longer():
    from diptych_serve.service.worker import Job, Worker

    batches: list[list[Job]] = []
    there = threading.Event()
    worker = Worker(lambda jobs: batches.append(list(jobs)) or there.set(), Limits(linger=30.0))
    jobs = [Job("caption", "toy", None) for _ in range(6)]
    for job in jobs[:3]:
        worker.submit(job)
    worker.start()
    assert there.wait(10), "the first batch waits for nobody: it takes who is there"
    there.clear()
    for job in jobs[3:]:
        assert not there.wait(0.05)
        worker.submit(job)
    assert there.wait(10)
    assert [len(batch) for batch in batches] == [3, 3]
    worker.stop()


@pytest.mark.slow
def test_the_first_line_comes_before_torch(tmp_path):
    line = first_line(tmp_path, "serve", "runs/captions", "runs/search", "--port", "0")
    assert line == "opening runs/captions, runs/search\n"
