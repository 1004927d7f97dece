"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from diptych.runtime.errors import DiptychError, ServingError
from diptych.serving import messages
from diptych.serving.messages import Asked, Message
from diptych.serving.predictor import Predictor
from diptych.serving.service.batches import KEPT, Batches, explain_error
from diptych.serving.service.limits import Limits
from diptych.serving.service.measures import Measures
from diptych.serving.service.pages import Pages
from diptych.serving.service.pictures import Gallery, drawn_examples
from diptych.serving.service.problems import GONE, Problem, Refused
from diptych.serving.service.uploads import open_upload, parse, read_body
from diptych.serving.service.worker import Job, Worker, late
from diptych.serving.taught import draws_its_pictures, facts, taught
from diptych.vision.detectors.detector import Picture

log = logging.getLogger("diptych.serve")
T = TypeVar("T")
Kinds = tuple[type[Asked], type[Message], str]
ENDPOINTS: dict[str, Kinds] = {
    "caption": (messages.CaptionRequest, messages.Caption, "Write a sentence about a picture."),
    "ask": (messages.AskRequest, messages.Answer, "Answer a question about a picture."),
    "ground": (messages.GroundRequest, messages.Grounded, "Find what an expression means in a picture."),
    "choose": (messages.ChooseRequest, messages.Choice, "Choose the right one of some answers, and the reason."),
    "verify": (messages.VerifyRequest, messages.Verified, "Say whether a statement is true of a picture."),
    "search": (messages.SearchRequest, messages.Hits, "Rank the service's pictures by how well they fit a text."),
}
WARMING = "a picture"  # a search for it extracts the gallery before the first request
REFUSALS = {
    401: "The token is missing or wrong.",
    408: "The request took too long to arrive.",
    413: "Too many bytes or pixels.",
    415: "Not a picture, or not one of the content types.",
    422: "The request, or the picture in it, cannot be read.",
    503: "The queue is full, or the deadline has passed: ask again after Retry-After seconds.",
}


@dataclass
class Service:
    """Open models by name, and the worker that owns them."""

    models: Mapping[str, Predictor]
    gallery: Gallery | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        can = {name: taught(predictor.folder) for name, predictor in self.models.items()}
        self.tasks = {
            name: tuple(task for task in tasks if task != "search" or self.gallery is not None)
            for name, tasks in can.items()
        }
        self.measures = Measures(lambda: len(self.worker))
        self.worker = Worker(Batches(self.models, self.gallery), self.limits, self.measures.batches.observe)
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
            if self.gallery is not None and "search" in self.tasks[name]:
                with suppress(ServingError):  # a model that does not know these words looks when it is asked in others
                    predictor.search(WARMING, self.gallery.folder, gallery=self.gallery.address, keep=KEPT)

    @property
    def facts(self) -> list[Any]:
        return [facts(name, one.folder, self.tasks[name]) for name, one in self.models.items()]

    def model_for(self, task: str, asked: Asked) -> str:
        can = [name for name, tasks in self.tasks.items() if task in tasks]
        if asked.model is None and can:
            return can[0]
        if asked.model is not None and asked.model in can:
            return asked.model
        way = "; those that do: " + ", ".join(can) if can else "; its tasks: " + self._all_tasks()
        found = f"no model of this service answers {task}"
        if asked.model is not None:
            found = f"the model {asked.model!r} does not answer {task}"
        if task == "search" and self.gallery is None:
            way = "; it was started without --pictures FOLDER, which can be searched"
        raise Refused(422, f"{found}{way} (GET /v1/models)", where="model")

    def _all_tasks(self) -> str:
        can = sorted({task for tasks in self.tasks.values() for task in tasks})
        return ", ".join(can) or "none"

    async def answer(self, task: str, request: Request) -> Message:
        """Raises Refused for whatever is not answered."""
        log = request.state
        body = await read_body(request, self.limits)
        expires = time.monotonic() + self.limits.deadline
        self.worker.admit(before=self.opening)  # before a picture is opened for nothing
        asked, content, name = await parse(ENDPOINTS[task][0], request.headers.get("content-type", ""), body)
        del body
        model = self.model_for(task, asked)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            picture = await self._open(content, expires, gone) if task != "search" else None
            del content
            job = Job(task, model, asked, picture, name, expires)
            log.task, log.model, log.timing = task, model, job.timing
            self.worker.submit(job)
            return await _before(asyncio.wrap_future(job.answered), expires, gone)
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

    def refusal(self, error: Exception, request: Request) -> Refused:
        if isinstance(error, Refused):
            return error
        folder = None if self.gallery is None else self.gallery.folder
        detail = explain_error(error, self.models, folder)
        if isinstance(error, DiptychError):
            return Refused(422, detail)
        request.state.error = type(error).__name__
        log.error("a fault of Diptych: please report it", exc_info=error)
        return Refused(500, detail)


async def _before(result: asyncio.Future[T], expires: float, gone: asyncio.Future[None]) -> T:
    """Its result, unless the deadline passes or the client is gone before: then nobody works for it any more."""
    try:
        left = max(0.0, expires - time.monotonic())
        either: set[asyncio.Future[Any]] = {result, gone}
        await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        raise Refused(GONE, "the client is gone") if gone.done() else late()
    finally:
        result.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def make_app(service: Service) -> FastAPI:
    """The routes alone; `Guard` stands before them."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        service.worker.stop(service.limits.deadline)
        service.decoders.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="Diptych", summary="Captions, answers and decisions about pictures.", version="1", lifespan=lifespan,
        docs_url=None, redoc_url=None,
    )  # fmt: skip
    for task, (asked, answer, summary) in ENDPOINTS.items():
        app.add_api_route(
            f"/v1/{task}",
            _endpoint(service, task),
            methods=["POST"],
            summary=summary,
            operation_id=task,
            response_model=answer,
            response_model_exclude_none=True,
            responses={status: {"model": Problem, "description": why} for status, why in REFUSALS.items()},
            openapi_extra={"requestBody": _body(asked, pictured=task != "search")},
        )
    Pages(service, app).add()
    for kind in (Refused, DiptychError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _problem)
    return app


def _endpoint(service: Service, task: str) -> Callable[[Request], Awaitable[Message]]:
    async def endpoint(request: Request, response: Response) -> Message:
        begun, status = time.perf_counter(), 200
        timing = None
        try:
            answer = await service.answer(task, request)
            timing = request.state.timing
            response.headers["Server-Timing"] = ", ".join(
                f"{part};dur={getattr(timing, part):.1f}" for part in ("queue", "extraction", "model")
            )
            return answer
        except Exception as error:
            refused = service.refusal(error, request)
            status = refused.status
            raise refused from None
        finally:
            service.measures.answered(task, status, time.perf_counter() - begun, timing)

    return endpoint  # type: ignore[return-value]


async def _problem(_: Request, error: Exception) -> Response:
    if isinstance(error, Refused):
        return error.response()
    if isinstance(error, HTTPException):
        way = {404: "there is nothing at this address; GET /docs names what there is", 405: "another method is wanted"}
        return Refused(error.status_code, way.get(error.status_code, str(error.detail))).response()
    log.error("a fault of Diptych: please report it", exc_info=error)
    return Refused(500, "a fault of the service; its log has it").response()


def _body(asked: type[Asked], pictured: bool) -> dict[str, Any]:
    """What OpenAPI says of a request's body: the same fields as a form with a file, or as JSON."""

    def schema(image: dict[str, Any]) -> dict[str, Any]:
        found = asked.model_json_schema()
        if pictured:
            found["properties"] = {"image": image, **found["properties"]}
            found["required"] = ["image", *found.get("required", [])]
        return {"schema": found}

    encoded = {"type": "string", "contentEncoding": "base64", "description": "The picture in base64."}
    file = {"type": "string", "format": "binary", "description": "The picture as a file."}
    content = {"application/json": schema(encoded)}
    if pictured:
        content = {"multipart/form-data": schema(file), **content}
    return {"required": True, "content": content}
