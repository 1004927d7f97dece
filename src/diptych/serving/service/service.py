"""Open models, the worker that owns them, and the way of one request through both."""

import asyncio
import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from fastapi import Request

from diptych.runtime.errors import DiptychError, ServingError
from diptych.serving.predictor import Predictor
from diptych.serving.service.batches import KEPT, RequestBatches, explain_error
from diptych.serving.service.limits import Limits
from diptych.serving.service.measures import Measures
from diptych.serving.service.pictures import PictureGallery, drawn_examples
from diptych.serving.service.problems import GONE, RequestRefused
from diptych.serving.service.uploads import open_upload, parse, read_body
from diptych.serving.service.worker import Job, Worker, late
from diptych.serving.taught import draws_its_pictures, facts, taught
from diptych.tasks import interfaces
from diptych.tasks.interface import Message, TaskRequest
from diptych.vision.detectors.detector import Picture

log = logging.getLogger("diptych.serve")
T = TypeVar("T")
WARMING = "a picture"  # a search for it extracts the gallery before the first request


@dataclass
class Service:
    """Open models by name, and the worker that owns them."""

    models: Mapping[str, Predictor]
    gallery: PictureGallery | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        can = {name: taught(predictor.folder) for name, predictor in self.models.items()}
        self.tasks = {
            name: tuple(task for task in tasks if self.gallery is not None or interfaces()[task].pictured)
            for name, tasks in can.items()
        }
        self.measures = Measures(lambda: len(self.worker))
        self.worker = Worker(RequestBatches(self.models, self.gallery), self.limits, self.measures.batches.observe)
        self.decoders = ThreadPoolExecutor(self.limits.decoders, "diptych-decoder")
        self.opening = 0  # pictures that a decoder has, or that wait for one
        self.examples: dict[str, bytes] = {}
        if any(draws_its_pictures(predictor.folder) for predictor in self.models.values()):
            self.examples = drawn_examples()

    def warm(self) -> None:
        """The first pass of a model takes longer than the next, and the first search extracts every picture. Raises
        what a detector or a gallery lacks, before anybody asks.
        """
        for name, predictor in self.models.items():
            predictor.extract([torch.full((3, 64, 64), 127, dtype=torch.uint8)], lambda _picture, _unseen: None)
            if self.gallery is not None and any(not interfaces()[task].pictured for task in self.tasks[name]):
                with suppress(ServingError):  # a model that does not know these words looks when it is asked in others
                    predictor.search(WARMING, self.gallery.folder, gallery=self.gallery.address, keep=KEPT)

    @property
    def facts(self) -> list[Any]:
        return [facts(name, one.folder, self.tasks[name]) for name, one in self.models.items()]

    def model_for(self, task: str, asked: TaskRequest) -> str:
        can = [name for name, tasks in self.tasks.items() if task in tasks]
        if asked.model is None and can:
            return can[0]
        if asked.model is not None and asked.model in can:
            return asked.model
        way = "; those that do: " + ", ".join(can) if can else "; its tasks: " + self._all_tasks()
        found = f"no model of this service answers {task}"
        if asked.model is not None:
            found = f"the model {asked.model!r} does not answer {task}"
        if self.gallery is None and not interfaces()[task].pictured:
            way = "; it was started without --pictures FOLDER, which can be searched"
        raise RequestRefused(422, f"{found}{way} (GET /v1/models)", where="model")

    def _all_tasks(self) -> str:
        can = sorted({task for tasks in self.tasks.values() for task in tasks})
        return ", ".join(can) or "none"

    async def answer(self, task: str, request: Request) -> tuple[TaskRequest, Message]:
        """The request, and what is answered. Raises Refused for whatever is not answered."""
        log = request.state
        interface = interfaces()[task]
        body = await read_body(request, self.limits)
        expires = time.monotonic() + self.limits.deadline
        self.worker.admit(before=self.opening)  # before a picture is opened for nothing
        asked, content, name = await parse(interface, request.headers.get("content-type", ""), body)
        del body
        model = self.model_for(task, asked)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            picture = await self._open(content, expires, gone) if interface.pictured else None
            del content
            job = Job(task, model, asked, picture, name, expires)
            log.task, log.model, log.timing = task, model, job.timing
            self.worker.submit(job)
            return asked, await _before(asyncio.wrap_future(job.answered), expires, gone)
        finally:
            gone.cancel()

    async def _open(self, content: bytes | None, expires: float, gone: asyncio.Future[None]) -> Picture:
        self.worker.admit(before=self.opening)  # others came while this one was read
        self.opening += 1
        try:
            opened = asyncio.ensure_future(open_upload(content, self.limits, self.decoders))
            return await _before(opened, expires, gone)
        finally:
            self.opening -= 1

    def refusal(self, error: Exception, request: Request) -> RequestRefused:
        if isinstance(error, RequestRefused):
            return error
        folder = None if self.gallery is None else self.gallery.folder
        detail = explain_error(error, self.models, folder)
        if isinstance(error, DiptychError):
            return RequestRefused(422, detail)
        request.state.error = type(error).__name__
        log.error("a fault of Diptych: please report it", exc_info=error)
        return RequestRefused(500, detail)


async def _before(result: asyncio.Future[T], expires: float, gone: asyncio.Future[None]) -> T:
    """Its result, unless the deadline passes or the client is gone before: then nobody works for it any more."""
    try:
        left = max(0.0, expires - time.monotonic())
        either: set[asyncio.Future[Any]] = {result, gone}
        await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        raise RequestRefused(GONE, "the client is gone") if gone.done() else late()
    finally:
        result.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
