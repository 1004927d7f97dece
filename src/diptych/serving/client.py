"""Asking a running service (`diptych serve`) in place of opening a model."""

import base64
import ipaddress
import json
import os
import re
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import from_json

from diptych.runtime.errors import DataError, ServingError
from diptych.runtime.files import bytes_of
from diptych.tasks.interface import TaskAnswer, TaskInterface, TaskRequest

TOKEN = "DIPTYCH_TOKEN"
TRIES = 6  # where the queue is full
TIMEOUT = 120.0  # seconds for one request
MOST = 16 * 2**20  # bytes of an answer
SECONDS = re.compile(r"[0-9]{1,3}")


class Client:
    """Thread-safe. Raises DataError for a picture that is refused, ServingError where the service does not answer."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServingError(f"{url!r} is not the address of a service; wanted such as http://127.0.0.1:8000")
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token := os.environ.get(TOKEN, "").strip():
            self._headers["Authorization"] = f"Bearer {token}"
        proxies: list[Any] = [urllib.request.ProxyHandler({})] if _is_local(parts.hostname) else []
        self._opener = urllib.request.build_opener(_Here(), *proxies)

    def ask(self, interface: TaskInterface, picture: Path, asked: TaskRequest) -> TaskAnswer:
        try:
            content = bytes_of(picture)
        except OSError as error:
            raise DataError(f"cannot read the picture {picture}: {error.strerror}; check the name") from error
        body = asked.model_dump(exclude_none=True, exclude_defaults=True)
        body |= {"image": base64.b64encode(content).decode(), "picture": picture.name}
        answer = self._post(f"/v1/{interface.verb}", json.dumps(body).encode(), picture)
        try:
            told = interface.response.model_validate({**answer, "picture": str(picture)})
            assert isinstance(told, TaskAnswer)
            return told
        except (ValidationError, TypeError) as error:
            raise ServingError(f"{self.url} is no service of this version of Diptych; check --server") from error

    def _post(self, path: str, body: bytes, picture: Path) -> Any:
        request = urllib.request.Request(self.url + path, body, self._headers)
        for tried in range(TRIES):
            try:
                with self._opener.open(request, timeout=TIMEOUT) as answer:
                    return _json(answer)
            except urllib.error.HTTPError as error:
                if error.code == 503 and tried < TRIES - 1:
                    asked = error.headers.get("Retry-After", "")
                    time.sleep(min(float(asked), 10.0) if SECONDS.fullmatch(asked) else 1.0)
                    continue
                detail = _detail(error)
                if error.code in (413, 415, 422):
                    raise DataError(f"{detail} ({picture})") from error
                raise ServingError(f"{self.url} answered {error.code}: {detail}") from error
            except (OSError, ValueError, HTTPException) as error:
                reason = str(getattr(error, "reason", error))[:300] or type(error).__name__
                raise ServingError(f"no answer from {self.url}: {reason}; start it: diptych serve MODEL") from error
        raise AssertionError("the last try answers or raises")


class _Here(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: picture and token are for the service that was named."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _json(answer: IO[bytes]) -> Any:
    """Raises ValueError for what is none, or too long for any answer."""
    content = answer.read(MOST + 1)
    if len(content) > MOST:
        raise ValueError(f"more than {MOST // 2**20} MiB")
    return from_json(content, allow_inf_nan=False)


def _detail(error: urllib.error.HTTPError) -> str:
    if 300 <= error.code < 400:
        return f"it is elsewhere ({error.headers.get('Location', '')[:200]!r}); give that address, where you trust it"
    try:
        return str(_json(error)["detail"])[:1000]
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return str(error.reason)[:300]


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
