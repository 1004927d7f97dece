"""The GET routes of the service: web page, documentation, models, images, health and metrics."""

import asyncio
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from jinja2 import Environment, PackageLoader, select_autoescape
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import HTMLResponse, Response

from diptych.inference.model_facts import ModelFacts
from diptych.tasks import interfaces, tasks_by_verb
from diptych.tasks.interface import Message
from diptych_serve.service.problems import RequestRefused
from diptych_serve.service.service import Service

FOLDER = "page"
SCRIPT = "text/javascript"
SCRIPTS = dict.fromkeys(("page.js", "view.js", "history.js", "corrections.js", "theme.js", "docs.js"), SCRIPT)
ASSETS = {**SCRIPTS, "page.css": "text/css", "icon.svg": "image/svg+xml"}


class Models(Message):
    """The response of /v1/models."""

    models: tuple[ModelFacts, ...]
    searches: bool  # True if there are images to search
    examples: tuple[tuple[str, str], ...]  # (id for /v1/pictures/{id}, file name) of each example image


class State(Message):
    """The response of /healthz and /readyz."""

    status: str


class Pages:
    """Adds the GET routes to the application (method `add`)."""

    def __init__(self, service: Service, app: FastAPI) -> None:
        self.service, self.app = service, app
        self._files = files("diptych_serve") / FOLDER

    def add(self) -> None:
        get = self.app.get
        get("/healthz", summary="Check that the process answers.")(self.healthz)
        get("/readyz", summary="Check that requests are accepted (503: starting or stopping).")(self.readyz)
        get("/metrics", summary="Counts and times for Prometheus.", response_class=Response)(self.metrics)
        get("/v1/models", summary="The models, their tasks and their training.")(self.models)
        about = "An image from a search, or an example."
        get("/v1/pictures/{name}", summary=about, response_class=Response)(self.picture)
        get("/v1/forms", include_in_schema=False)(self.forms)
        get("/", include_in_schema=False)(self.page)
        get("/docs", include_in_schema=False)(self.docs)
        for name in ASSETS:
            get(f"/{name}", include_in_schema=False)(self._asset(name))

    async def healthz(self) -> State:
        return State(status="alive")

    async def readyz(self) -> State:
        if not self.service.worker.alive:
            raise RequestRefused(503, "the service is starting or stopping; retry in a few seconds", retry=2)
        return State(status="ready")

    async def metrics(self) -> Response:
        return Response(self.service.measures.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def models(self) -> Models:
        service = self.service
        examples = [(name, f"{name}.png") for name in service.drawn]
        if service.gallery is not None:
            examples = await asyncio.to_thread(service.gallery.first)
        searches = any("search" in tasks for tasks in service.tasks.values())
        return Models(models=tuple(service.facts), searches=searches, examples=tuple(examples))

    async def picture(self, name: str, large: bool = False) -> Response:
        if (drawn := self.service.drawn.get(name)) is not None:
            return Response(drawn, media_type="image/png")
        gallery = self.service.gallery
        shown = None if gallery is None else await asyncio.to_thread(gallery.shown, name, large)
        if shown is None:
            raise RequestRefused(404, "no search since the service started has found this image; search again")
        return Response(shown, media_type="image/jpeg")

    async def forms(self) -> list[dict[str, Any]]:
        """Return, for each task, the fields of its form on the web page, and commands to train and serve a model."""
        forms = []
        for verb, spec in tasks_by_verb().items():
            run = f"runs/{spec.name}"
            serve = f"diptych serve {run}" if interfaces()[verb].pictured else f"diptych serve {run} --images FOLDER"
            train = f"diptych finetune {spec.name} --data STORE --model RUN --out {run}"
            forms.append(interfaces()[verb].form() | {"serve": [train, serve]})
        return forms

    async def page(self) -> Response:
        return HTMLResponse((self._files / "index.html").read_bytes())

    async def docs(self, request: Request) -> Response:
        pages = Environment(loader=PackageLoader("diptych_serve", FOLDER), autoescape=select_autoescape(["jinja"]))
        values = {"api": self.app.openapi(), "resolve": self._resolve, "base": str(request.base_url).rstrip("/")}
        return HTMLResponse(pages.get_template("docs.html.jinja").render(values))

    def _resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema to which an OpenAPI reference points."""
        name = schema.get("$ref", "").removeprefix("#/components/schemas/")
        resolved: dict[str, Any] = self.app.openapi()["components"]["schemas"].get(name, schema)
        return resolved

    def _asset(self, name: str) -> Any:
        async def asset() -> Response:
            return Response((self._files / name).read_bytes(), media_type=ASSETS[name])

        return asset
