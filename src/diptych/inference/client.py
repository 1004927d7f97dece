"""A client of a running service (`diptych serve`), to be used in place of a local model."""

import base64
import ipaddress
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import from_json

from diptych.runtime.errors import DataError, ServingError, explained
from diptych.runtime.files import bytes_of
from diptych.tasks.interface import TaskAnswer, TaskInterface, TaskRequest
from diptych.tasks.retrieval import SearchHits, SearchRequest

TOKEN = "DIPTYCH_TOKEN"
TRIES = 6  # maximum number of times that a request is sent while the service's queue is full
TIMEOUT = 120.0  # seconds after which a request without a response fails
LONGEST_RESPONSE = 16 * 2**20  # a response of more bytes is refused
SECONDS = re.compile(r"[0-9]{1,3}")
T = TypeVar("T")


class Client:
    """Sends requests to a service. Thread-safe. The token is read from $DIPTYCH_TOKEN."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:  # raised for an IPv6 address without its brackets, for example
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServingError(f"{url!r} is not the address of a service; expected one such as http://127.0.0.1:8000")
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token := os.environ.get(TOKEN, "").strip():
            self._headers["Authorization"] = f"Bearer {token}"
        proxies: list[Any] = [urllib.request.ProxyHandler({})] if is_loopback(parts.hostname) else []
        self._opener = urllib.request.build_opener(_NoRedirects(), *proxies)

    def ask(self, interface: TaskInterface, picture: Path, request: TaskRequest) -> TaskAnswer:
        """Return the service's answer about an image.

        Retries while the service's queue is full. Raises DataError if the image cannot be read or is rejected. Raises
        ServingError if the service does not answer.
        """
        with explained(DataError, f"cannot read the image {picture}", "correct the path"):
            content = bytes_of(picture)
        body = request.model_dump(exclude_none=True, exclude_defaults=True) | {
            "image": base64.b64encode(content).decode(),
            "picture": picture.name,
        }
        answer = self._sent(f"/v1/{interface.verb}", json.dumps(body).encode(), str(picture))
        message = self._read(lambda: interface.response.model_validate({**answer, "picture": str(picture)}))
        assert isinstance(message, TaskAnswer)
        return message

    def search(self, request: SearchRequest) -> SearchHits:
        """Search the images of the service.

        Raises DataError if the query is rejected, and ServingError if the service does not answer.
        """
        body = request.model_dump(exclude_none=True, exclude_defaults=True)
        answer = self._sent("/v1/search", json.dumps(body).encode(), request.query)
        return self._read(lambda: SearchHits.model_validate(answer))

    def verbs(self) -> list[str]:
        """Return the verbs, such as `caption`, that the models of the service answer. Raises ServingError."""
        answer = self._sent("/v1/models", None, "/v1/models")
        return self._read(lambda: list(dict.fromkeys(str(verb) for one in answer["models"] for verb in one["tasks"])))

    def _read(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (ValidationError, TypeError, KeyError) as error:
            raise ServingError(f"{self.url} is not a service of this version of Diptych; correct --server") from error

    def _sent(self, path: str, body: bytes | None, about: str) -> Any:
        """Send a POST request, or a GET request if `body` is None. Return the JSON of the response.

        `about`: the subject of error messages.
        """
        request = urllib.request.Request(self.url + path, body, self._headers)
        for tried in range(TRIES):
            try:
                with self._opener.open(request, timeout=TIMEOUT) as answer:
                    return _json(answer)
            except urllib.error.HTTPError as error:
                if error.code == 503 and tried < TRIES - 1:
                    wait = error.headers.get("Retry-After", "")
                    time.sleep(min(float(wait), 10.0) if SECONDS.fullmatch(wait) else 1.0)
                    continue
                detail = _detail(error)
                if error.code in (413, 415, 422):
                    raise DataError(f"{detail} ({about})") from error
                raise ServingError(f"{self.url} answered {error.code}: {detail}") from error
            except (OSError, ValueError, HTTPException) as error:
                reason = str(getattr(error, "reason", error))[:300] or type(error).__name__
                raise ServingError(f"no valid answer from {self.url}: {reason}; run: diptych serve MODEL") from error
        raise AssertionError("the last try returns or raises")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Raises an error for redirects, because image and token must be sent only to the given service."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _json(answer: IO[bytes]) -> Any:
    """Return the JSON of a response. Raises ValueError if the response is too long or is not JSON."""
    content = answer.read(LONGEST_RESPONSE + 1)
    if len(content) > LONGEST_RESPONSE:
        raise ValueError(f"the answer has more than {LONGEST_RESPONSE // 2**20} MiB")
    return from_json(content, allow_inf_nan=False)


def _detail(error: urllib.error.HTTPError) -> str:
    if 300 <= error.code < 400:
        return f"it redirects to {error.headers.get('Location', '')[:200]!r}; pass that address if you trust it"
    try:
        return str(_json(error)["detail"])[:1000]
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return str(error.reason)[:300]


def is_loopback(host: str) -> bool:
    """Return True for localhost and other addresses that only this machine can reach."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
