"""Parse the body of a request into validated fields and an image.

Nothing is written to disk. Files and URLs that the client names are never opened.
"""

import asyncio
import base64
import binascii
import re
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from diptych.runtime.errors import DataError
from diptych.tasks.interface import TaskInterface, TaskRequest
from diptych.vision.decoder import Decoders
from diptych.vision.detectors.detector import Picture
from diptych.vision.pictures import as_picture
from diptych.vision.upright import TooManyPixels, UnknownFormat
from diptych_serve.service.limits import Limits
from diptych_serve.service.problems import GONE, RequestRefused

Sent = tuple[dict[str, Any], bytes | None, str]  # (fields, bytes of the image, image's name)
IMAGE = "image"
FIELDS, VALUE = 64, 64 * 1024  # maximum number of fields, and of bytes per field
UNNAMED = "image"
NICE = 10  # niceness of the processes that decode large images
PIECE = 2**16  # size in bytes of the pieces in which commas and brackets are counted


class _InMemory(MultiPartParser):
    spool_max_size = 2**40  # so large that uploads are never written to disk

    def close(self) -> int:
        """Close the files of all parts, also of a part without an end, and return their number."""
        for file in self._files_to_close_on_error:
            file.close()
        return len(self._files_to_close_on_error)


class Arriving:
    """A reader of request bodies. At most `limits.arriving_bytes` of them are in memory at the same time."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._bytes = limits, 0

    async def read(self, request: Request) -> bytes:
        """Return the body of a request.

        Raises RequestRefused: 413 if the body is too large, 408 if it arrives too slowly, 503 if too many requests
        arrive.
        """
        limits, body = self._limits, bytearray()
        announced = request.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > limits.body:
            raise _too_large(limits)
        try:
            async with asyncio.timeout(limits.upload):
                async for chunk in request.stream():
                    body += chunk
                    self._bytes += len(chunk)
                    if len(body) > limits.body:
                        raise _too_large(limits)
                    if self._bytes > limits.arriving_bytes:
                        raise RequestRefused(503, "too many requests arrive; retry in a second", retry=1, close=True)
        except TimeoutError:
            late = f"the request had not arrived after {limits.upload:g} seconds; send a smaller image"
            raise RequestRefused(408, late, close=True) from None
        except ClientDisconnect:
            raise RequestRefused(GONE, "the client has disconnected") from None
        finally:
            self._bytes -= len(body)
        return bytes(body)


def _too_large(limits: Limits) -> RequestRefused:
    detail = f"the request has more than {limits.body // 2**20} MiB; send a smaller image"
    return RequestRefused(413, detail, where="body", close=True)


async def parse(
    interface: TaskInterface, content_type: str, body: bytes, limits: Limits
) -> tuple[TaskRequest, bytes | None, str]:
    """Return the validated fields, the bytes of the image, and the image's name. Raises RequestRefused (415 or 422)."""
    media = content_type.partition(";")[0].strip().lower()
    if media == "application/json":
        values, image, name = await asyncio.to_thread(_from_json, body, limits.signs)
    elif media == "multipart/form-data":
        values, image, name = await _from_form(content_type, body, interface.list_fields)
    else:
        raise RequestRefused(
            415,
            f"found content type {media or 'none'!r}; expected multipart/form-data with a file `{IMAGE}`, or "
            "application/json with the image in base64",
            where="content-type",
        )
    try:
        return interface.request.model_validate(values), image, name
    except ValidationError as error:
        raise _wrong(error) from None


def _from_json(body: bytes, signs: int) -> Sent:
    signs_seen = 0
    for at in range(0, len(body), PIECE):
        signs_seen += sum(map(body[at : at + PIECE].count, (b",", b"[", b"{")))
        if signs_seen > signs:
            raise RequestRefused(422, f"the JSON has more than {signs:,} commas and opening brackets", where="body")
    try:
        values = from_json(body.removeprefix(BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise RequestRefused(422, f"the body is not JSON: {error}", where="body") from None
    if not isinstance(values, dict):
        raise RequestRefused(422, f"found JSON of type {type(values).__name__}; expected an object", where="body")
    if len(values) > FIELDS:
        raise RequestRefused(422, f"the JSON has {len(values):,} fields; expected at most {FIELDS}", where="body")
    encoded, name = values.pop(IMAGE, None), values.pop("picture", UNNAMED)
    if encoded is None:
        return values, None, UNNAMED
    if not isinstance(encoded, str) or not isinstance(name, str):
        raise RequestRefused(422, "expected the image as a string in base64, and its name as a string", where=IMAGE)
    try:
        return values, base64.b64decode(encoded, validate=True), _named(name)
    except (binascii.Error, ValueError) as error:
        raise RequestRefused(422, f"the image is not base64: {error}", where=IMAGE) from None


async def _from_form(content_type: str, body: bytes, lists: Collection[str]) -> Sent:
    async def whole() -> AsyncGenerator[bytes, None]:
        yield body

    charset = re.search(r"charset\s*=\s*\"?([^\s;\"]*)", content_type, re.IGNORECASE)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise RequestRefused(415, f"found charset {charset[1][:50]!r}; expected UTF-8", where="content-type")
    headers = Headers({"content-type": content_type})
    parser = _InMemory(headers, whole(), max_files=1, max_fields=FIELDS, max_part_size=VALUE)
    try:
        form = await parser.parse()
        sent = await _fields(form, lists)
    except (MultiPartException, KeyError, ValueError, LookupError) as error:
        raise RequestRefused(422, f"the form cannot be read: {error}", where="body") from None
    finally:
        files = parser.close()
    if files and sent[1] is None:
        raise RequestRefused(422, "the form is cut off: the file has no end; send it again", where="body")
    return sent


async def _fields(form: FormData, lists: Collection[str]) -> Sent:
    values: dict[str, Any] = {}
    image, name = None, UNNAMED
    for key, value in form.multi_items():
        if isinstance(value, UploadFile):
            if key != IMAGE:
                raise RequestRefused(422, f"found a file in field {key[:100]!r}, expected it in {IMAGE!r}", where=IMAGE)
            image, name = await value.read(), _named(value.filename or UNNAMED)
        elif key == IMAGE:
            raise RequestRefused(422, f"`{IMAGE}` is text; expected a file (curl: -F {IMAGE}=@photo.jpg)", where=IMAGE)
        elif key in lists:  # the value of this field is a list, so the field may occur again
            values.setdefault(key, []).append(value)
        elif key in values:
            raise RequestRefused(422, f"the field {key[:100]!r} occurs twice; send it once", where=key[:100])
        else:
            values[key] = value
    return values, image, name


def _named(name: str) -> str:
    """Return the last component of a file name, for messages."""
    return "".join(letter for letter in re.split(r"[/\\]", name)[-1] if letter.isprintable())[:200] or UNNAMED


def _wrong(error: ValidationError) -> RequestRefused:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, one['loc']))[:100] or 'the request'}: {one['msg']}" for one in problems]
    more = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
    where = str((problems[0]["loc"] or ("body",))[0])[:100]
    return RequestRefused(422, "; ".join(lines[:5]) + more, where=where)


class Openers:
    """A pool of processes that decode images.

    Large images have separate processes with low priority, so that they do not delay other images.
    """

    def __init__(self, limits: Limits) -> None:
        lanes = {0: min(limits.quick_pixels, limits.pixels), NICE: limits.pixels}
        self._lanes = [
            (Decoders(limits.decoders, limits.decoding, nice=nice), ThreadPoolExecutor(limits.decoders), pixels)
            for nice, pixels in lanes.items()
        ]  # a thread per decoder process waits for its results
        self._most = limits.pixels

    async def open(self, content: bytes | None) -> Picture:
        """Return the decoded image (3, H, W).

        Raises RequestRefused: 413 for too many pixels, 415 for an unknown format, 422 for a damaged file.
        """
        if content is None:
            raise RequestRefused(422, f"the image is missing; send a file `{IMAGE}`, or base64 in JSON", where=IMAGE)
        if not content:
            raise RequestRefused(422, "the file that was sent is empty; send an image", where=IMAGE)
        for decoders, threads, pixels in self._lanes:
            opened = partial(decoders.read, content, "the file that was sent", pixels)
            try:
                return as_picture(await asyncio.get_running_loop().run_in_executor(threads, opened))
            except DataError as error:
                if pixels < self._most and isinstance(error, TooManyPixels):
                    continue
                status = {TooManyPixels: 413, UnknownFormat: 415}.get(type(error), 422)
                raise RequestRefused(status, str(error), where=IMAGE) from None
        raise AssertionError("the last group of processes accepts images of any size")

    def stop(self) -> None:
        """Reject waiting images, and end the processes."""
        for decoders, threads, _ in self._lanes:
            threads.shutdown(wait=False, cancel_futures=True)
            decoders.close()
