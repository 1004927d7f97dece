"""The service as an ASGI application, with a route for each task that can be served."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from diptych.runtime.errors import DiptychError
from diptych.tasks import interfaces
from diptych.tasks.interface import Message, TaskInterface
from diptych_serve.service.pages import Pages
from diptych_serve.service.problems import INTERNAL, Problem, RequestRefused
from diptych_serve.service.service import Service

log = logging.getLogger("diptych.serve")
PAGE_VIEW = "application/vnd.diptych.page+json"  # the web page sends this `Accept` header to get page views
REFUSALS = {
    401: "The token is missing or wrong.",
    408: "The request took too long to arrive.",
    413: "Too many bytes or pixels.",
    415: "Not an image, or not one of the content types.",
    422: "The request, or the image in it, cannot be read.",
    503: "The queue is full, or the deadline has passed: retry after Retry-After seconds.",
}


def make_app(service: Service) -> FastAPI:
    """Return the application with all routes. `RequestGuard` wraps it and checks each request first."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        service.stop()

    about = "Captions, answers and decisions about images."
    app = FastAPI(title="Diptych", summary=about, version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    for task, interface in interfaces().items():
        app.add_api_route(
            f"/v1/{task}",
            _endpoint(service, task, interface),
            methods=["POST"],
            summary=interface.help,
            operation_id=task,
            response_model=interface.response,
            response_model_exclude_none=True,
            responses={status: {"model": Problem, "description": why} for status, why in REFUSALS.items()},
            openapi_extra={"requestBody": _body(interface)},
        )
    Pages(service, app).add()
    for kind in (RequestRefused, DiptychError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _problem)
    return app


def _endpoint(service: Service, task: str, interface: TaskInterface) -> Callable[[Request], Awaitable[Message]]:
    async def endpoint(request: Request, response: Response) -> Message | Response:
        begun, status, timing = time.perf_counter(), 200, None
        try:
            values, answer = await service.answer(task, request)
            timing = request.state.timing
            parts = [f"{part};dur={getattr(timing, part):.1f}" for part in ("queue", "extraction", "model")]
            response.headers["Server-Timing"] = ", ".join(parts)
            if request.headers.get("accept") == PAGE_VIEW:
                view = interface.build_view(values, answer).model_dump_json(exclude_none=True)
                return Response(view, headers=dict(response.headers), media_type=PAGE_VIEW)
            return answer
        except Exception as error:
            refused = service.refusal(error, request)
            status = refused.status
            raise refused from None
        finally:
            service.measures.answered(task, status, time.perf_counter() - begun, timing)

    return endpoint  # type: ignore[return-value]


async def _problem(_: Request, error: Exception) -> Response:
    if isinstance(error, RequestRefused):
        return error.response()
    if isinstance(error, HTTPException):
        allowed = (error.headers or {}).get("Allow", "").replace("GET", "GET, HEAD")
        details = {404: "nothing is at this address; GET /docs lists the addresses", 405: f"expected {allowed}"}
        response = RequestRefused(error.status_code, details.get(error.status_code, str(error.detail))).response()
        if allowed:
            response.headers["Allow"] = allowed
        return response
    log.error("a fault of Diptych: please report it", exc_info=error)
    return RequestRefused(500, INTERNAL).response()


def _body(interface: TaskInterface) -> dict[str, Any]:
    """Return the OpenAPI description of a request's body: a form with a file, or JSON."""

    def schema(image: dict[str, Any]) -> dict[str, Any]:
        fields = interface.request.model_json_schema()
        if interface.pictured:
            fields["properties"] = {"image": image, **fields["properties"]}
            fields["required"] = ["image", *fields.get("required", [])]
        return {"schema": fields}

    encoded = {"type": "string", "contentEncoding": "base64", "description": "The image in base64."}
    file = {"type": "string", "format": "binary", "description": "The image as a file."}
    content = {"application/json": schema(encoded)}
    if interface.pictured:
        content = {"multipart/form-data": schema(file), **content}
    return {"required": True, "content": content}
