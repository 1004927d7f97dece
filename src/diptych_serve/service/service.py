"""`Service`: the opened models, the worker that runs them, and the handling of a request."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from fastapi import Request

from diptych.inference.model_facts import ModelFacts, is_drawn_world, model_facts, offered_tasks
from diptych.inference.predictor import Predictor
from diptych.inference.search import Progress
from diptych.runtime.errors import DataError, DiptychError, GalleryError, ServingError
from diptych.tasks import interfaces
from diptych.tasks.interface import Message, TaskRequest
from diptych.vision.detectors.detector import Picture
from diptych_serve.service.batches import KEPT, RequestBatches, explain_error
from diptych_serve.service.limits import Limits
from diptych_serve.service.measures import Measures
from diptych_serve.service.pictures import PictureGallery, drawn_examples
from diptych_serve.service.problems import GONE, RequestRefused
from diptych_serve.service.uploads import Arriving, Openers, parse
from diptych_serve.service.worker import Job, Worker, late

log = logging.getLogger("diptych.serve")
T = TypeVar("T")
WARMING = "a picture"  # query of the search at the start, which extracts the gallery's regions


@dataclass
class Service:
    """The opened models by name, an optional gallery to search, and the worker that runs the models."""

    models: Mapping[str, Predictor]
    gallery: PictureGallery | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        can = {name: offered_tasks(predictor.folder) for name, predictor in self.models.items()}
        self.tasks = {
            name: tuple(task for task in tasks if self.gallery is not None or interfaces()[task].pictured)
            for name, tasks in can.items()
        }
        self.measures = Measures(lambda: len(self.worker))
        self.worker = Worker(RequestBatches(self.models, self.gallery), self.limits, self.measures.batches.observe)
        self.openers = Openers(self.limits)
        self.arriving = Arriving(self.limits)
        self.opening = 0  # number of images that are being decoded or wait for a decoder
        self.drawn: Mapping[str, bytes] = {}
        if self.gallery is None and any(is_drawn_world(predictor.folder) for predictor in self.models.values()):
            self.drawn = drawn_examples()

    def warm(self, progress: Progress | None = None) -> None:
        """Run each model once, because the first pass is slow. Extract the regions of the gallery, and shrink examples.

        So errors of a detector or gallery are raised before the first request. `progress`: shows what is extracted.
        """
        for name, predictor in self.models.items():
            predictor.extract([torch.full((3, 64, 64), 127, dtype=torch.uint8)], lambda _picture, _error: None)
            if self.gallery is not None and any(not interfaces()[task].pictured for task in self.tasks[name]):
                try:
                    predictor.search(
                        WARMING, self.gallery.folder, progress=progress, gallery=self.gallery.address, keep=KEPT
                    )
                except GalleryError:
                    raise
                except ServingError:  # the vocabulary lacks these words, so the first request extracts the regions
                    pass
        if self.gallery is not None:
            shown = [self.gallery.shown(name) for name, _ in self.gallery.first()]
            if not shown:
                raise DataError(f"found no image in {self.gallery.folder}; pass a folder of images")

    def stop(self) -> None:
        """Reject waiting requests, finish requests in progress within the deadline, and end the decoding processes."""
        self.worker.stop(self.limits.deadline)
        self.openers.stop()

    @property
    def facts(self) -> list[ModelFacts]:
        """The facts about all models of the service."""
        return [model_facts(name, one.folder, self.tasks[name]) for name, one in self.models.items()]

    def model_for(self, task: str, request: TaskRequest) -> str:
        """Return the name of the request's model. If it names none, return the first model for the task.

        Raises RequestRefused (422) if no model fits.
        """
        able = [name for name, tasks in self.tasks.items() if task in tasks]
        if able and request.model in (None, *able):
            return request.model or able[0]
        which = "no model of this service" if request.model is None else f"the model {request.model!r} does not"
        if able:
            advice = "models for it: " + ", ".join(able)
        elif self.gallery is None and not interfaces()[task].pictured:
            advice = "to search a folder, start the service with --images FOLDER"
        else:
            all_tasks = sorted({one for tasks in self.tasks.values() for one in tasks})
            advice = "the tasks of this service: " + (", ".join(all_tasks) or "none")
        verb = "offers" if request.model is None else "offer"
        raise RequestRefused(422, f"{which} {verb} the task {task}; {advice} (GET /v1/models)", where="model")

    async def answer(self, task: str, request: Request) -> tuple[TaskRequest, Message]:
        """Return the parsed request and the model's answer. Raises RequestRefused, or the model's error."""
        log = request.state
        interface = interfaces()[task]
        body = await self.arriving.read(request)
        expires = time.monotonic() + self.limits.deadline
        self.worker.admit(before=self.opening)  # refuse a request to a full queue before decoding its image
        values, content, name = await parse(interface, request.headers.get("content-type", ""), body, self.limits)
        del body
        model = self.model_for(task, values)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            picture = await self._open(content, expires, gone) if interface.pictured else None
            del content
            job = Job(task, model, values, picture, name, expires)
            log.task, log.model, log.timing = task, model, job.timing
            self.worker.submit(job)
            return values, await _before(asyncio.wrap_future(job.answered), expires, gone)
        finally:
            gone.cancel()

    async def _open(self, content: bytes | None, expires: float, gone: asyncio.Future[None]) -> Picture:
        self.worker.admit(before=self.opening)  # check again, because other requests may have filled the queue
        self.opening += 1
        try:
            opened = asyncio.ensure_future(self.openers.open(content))
            return await _before(opened, expires, gone)
        finally:
            self.opening -= 1

    def refusal(self, error: Exception, request: Request) -> RequestRefused:
        """Convert an error of a request to RequestRefused. An unexpected error is logged and gets the status 500."""
        if isinstance(error, RequestRefused):
            return error
        detail = explain_error(error, self.models, None if self.gallery is None else self.gallery.folder)
        if isinstance(error, DiptychError):
            return RequestRefused(422, detail)
        request.state.error = type(error).__name__
        log.error("a fault of Diptych: please report it", exc_info=error)
        return RequestRefused(500, detail)


async def _before(result: asyncio.Future[T], expires: float, gone: asyncio.Future[None]) -> T:
    """Return the awaited result. If the deadline passes or the client disconnects first, cancel it and raise
    RequestRefused.
    """
    try:
        left = max(0.0, expires - time.monotonic())
        either: set[asyncio.Future[Any]] = {result, gone}
        await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        raise RequestRefused(GONE, "the client has disconnected") if gone.done() else late()
    finally:
        result.cancel()


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
