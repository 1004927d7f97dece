"""Whatever is sent, a service refuses it by name, opens nothing that was named, and goes on."""

from __future__ import annotations

import asyncio
import base64
import builtins
import gc
import io
import json
import struct
import tempfile
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from diptych.tasks import interfaces
from diptych_serve.service.guard import POLICY
from diptych_serve.service.limits import Limits
from diptych_serve.service.problems import RequestRefused
from diptych_serve.service.service import Service
from diptych_serve.service.uploads import parse
from tests.support.service import Local, make_model, picture, problem

FORM = "multipart/form-data; boundary=x"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    limits = Limits(body=400_000, pixels=1_000_000)
    made = Local(Service({"toy": make_model(tmp_path_factory.mktemp("uploads"))}, limits=limits))
    yield made
    made.service.worker.stop()


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it is so large, in a few bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("verb", sorted(interfaces()))
@pytest.mark.parametrize("item", [None, {}, [], 1, "x" * 501], ids=["null", "object", "list", "number", "long"])
def test_a_list_of_wrong_items_costs_one_error(verb: str, item: object) -> None:
    """Each error has an object of its own, and a million of them stopped the service for five seconds."""
    interface = interfaces()[verb]
    for field in interface.request.model_fields:
        values = {field: [item] * 9_900}
        with pytest.raises(ValidationError) as found:
            interface.request.model_validate(values)
        assert found.value.error_count() <= len(interface.request.model_fields)
        body = json.dumps(values).encode()
        with pytest.raises(RequestRefused) as refused:
            asyncio.run(parse(interface, "application/json", body, Limits()))
        assert (refused.value.status, len(refused.value.detail) < 600) == (422, True)


def test_json_has_as_many_signs_as_are_allowed():
    body, ask = b'{"image": "AAAA", "question": "a"}', interfaces()["ask"]
    _, image, _ = asyncio.run(parse(ask, "application/json", body, Limits(signs=2)))
    assert image == bytes(3)
    with pytest.raises(RequestRefused, match="more than 1 commas and opening brackets"):
        asyncio.run(parse(ask, "application/json", body, Limits(signs=1)))


FIELDS = ["image", "question", "model", "explain", "picture"]
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\nshowpage\n"


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (b"no image at all", 415, "the file that was sent does not hold an image; pass a file of type .jpg"),
        (b"", 422, "the file that was sent is empty"),
        (EPS, 415, "does not hold an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "does not hold an image"),
        (picture()[:200], 422, "may be cut short"),
        (picture(kind="JPEG")[:200], 422, "may be cut short"),
        (picture(size=(2, 2)), 422, "expected 4 or more per side"),
        (bomb(1200, 1200), 413, "more than 1,000,000 pixels"),
        (bomb(2**31 - 1, 2**31 - 1), 413, "more than 1,000,000 pixels"),
        (b"x" * 500_000, 413, "send a smaller image"),
    ],
)
def test_bad_pictures_are_refused_by_name(local, content, status, told):
    refused = problem(local.post("/v1/caption", content))
    assert refused["status"] == status
    assert told in refused["detail"]
    assert local.post("/v1/caption", picture()).status_code == 200


@pytest.mark.parametrize(
    ("body", "kind", "status", "where"),
    [
        (b"{}", "application/json", 422, "question"),
        (b"{", "application/json", 422, "body"),
        (b"[]", "application/json", 422, "body"),
        (b"[" * 100_000, "application/json", 422, "body"),
        (b'{"question": "a", "image": 5}', "application/json", 422, "image"),
        (b'{"question": "a", "image": "***"}', "application/json", 422, "image"),
        (b'{"question": ["a"], "image": "AAAA"}', "application/json", 422, "question"),
        (b'{"question": "a", "colour": "b"}', "application/json", 422, "colour"),
        (json.dumps({"question": "a" * 501}).encode(), "application/json", 422, "question"),
        (b"question=a", "application/x-www-form-urlencoded", 415, "content-type"),
        (b"question=a", "", 415, "content-type"),
        (b"", "multipart/form-data", 422, "body"),
        (b"nothing", FORM, 422, "body"),
        (b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--", FORM, 422, "body"),
        (b'--x\r\nContent-Disposition: form-data; name="image"\r\n\r\n/etc/passwd\r\n--x--\r\n', FORM, 422, "image"),
        (b'--x\r\nContent-Disposition: form-data; name="f"; filename="g"\r\n\r\na\r\n--x--\r\n', FORM, 422, "image"),
        (b'--x\r\nContent-Disposition: form-data; name="image"; filename="g"\r\n\r\na', FORM, 422, "body"),
    ],
)
def test_bad_requests_say_where_and_what(local, body, kind, status, where):
    refused = problem(local.post("/v1/ask", content=body, headers={"content-type": kind}))
    assert (refused["status"], refused["where"]) == (status, where), refused


def test_a_form_that_is_cut_off_is_named_and_leaves_no_file_open(local):
    cut = b'--x\r\nContent-Disposition: form-data; name="image"; filename="g"\r\n\r\n' + picture()[:90]
    refused = problem(local.post("/v1/caption", content=cut, headers={"content-type": FORM}))
    assert refused["detail"] == "the form is cut off: the file has no end; send it again"
    gc.collect()  # an open file is a warning, which pytest makes an error


def test_options_out_of_range_are_refused_by_their_names(local):
    for name, value in {
        "beams": "0",
        "captions": "17",
        "max_words": "1000",
        "top_p": "nan",
        "sample": "perhaps",
    }.items():
        refused = problem(local.post("/v1/caption", picture(), data={name: value}))
        assert (refused["status"], refused["where"]) == (422, name)
    both = problem(local.post("/v1/caption", picture(), data={"top_k": "3", "beams": "3"}))
    assert "sample=true cannot be combined with beam search" in both["detail"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "C:\\secret\\a.png", "http://example.org/a.png"])
def test_nothing_that_is_named_is_opened_and_nothing_is_kept(local, name, monkeypatch):
    local.post("/v1/caption", picture())  # whatever is read once is read
    opened: list[object] = []
    real = builtins.open
    monkeypatch.setattr(
        builtins, "open", lambda path, *rest, **named: opened.append(path) or real(path, *rest, **named)
    )
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda *_, **__: pytest.fail("a picture goes to disk"))
    large = picture(size=(300, 300))
    answer = local.ask("POST", "/v1/caption", files={"image": (name, large)})
    assert answer.json()["picture"] == name.replace("\\", "/").rsplit("/", 1)[-1]
    told = local.post("/v1/caption", json={"image": base64.b64encode(large).decode(), "picture": name})
    assert told.json()["picture"] == answer.json()["picture"]
    assert not [path for path in opened if "passwd" in str(path) or "a.png" in str(path)]


def test_a_path_or_an_address_in_place_of_a_picture_is_refused(local):
    for value in ("/etc/passwd", "file:///etc/passwd", "http://169.254.169.254/latest"):
        assert problem(local.post("/v1/caption", json={"image": value}))["where"] == "image"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(lambda value: json.dumps(value).encode(), st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=30),
            lambda inside: st.lists(inside, max_size=3) | st.dictionaries(
                st.sampled_from(FIELDS) | st.text(max_size=5), inside, max_size=4
            ),
        )),
    ),
    st.sampled_from(["application/json", FORM, "image/png", "application/json; charset=\xff"]),
    st.sampled_from(["caption", "ask", "verify", "search"]),
)  # fmt: skip
def test_garbage_is_never_a_fault_of_the_service(local, body, kind, task):
    answer = local.post(f"/v1/{task}", content=body, headers={"content-type": kind.encode("latin-1")})
    assert answer.status_code in (413, 415, 422), answer.text
    problem(answer)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"]))
def test_damaged_pictures_are_never_a_fault_of_the_service(local, seed, kind):
    from random import Random

    rng, content = Random(seed), bytearray(picture(kind=kind))
    for _ in range(rng.randint(1, 20)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    answer = local.post("/v1/caption", bytes(content[: rng.randint(1, len(content))]))
    assert answer.status_code in (200, 413, 415, 422), answer.text


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=60))
def test_any_words_are_answered_or_refused(local, words):
    content = base64.b64encode(picture()).decode()
    for task, name in (("ask", "question"), ("verify", "statement"), ("ground", "expression")):
        body = json.dumps({"image": content, name: words}).encode()
        answer = local.post(f"/v1/{task}", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (200, 422), answer.text


def test_only_its_own_hosts_are_answered(local):
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "192.168.0.4:80"):
        assert local.get("/healthz", headers={"host": host}).status_code == 200, host
    for host in ("evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example", "["):
        assert problem(local.get("/healthz", headers={"host": host}))["status"] == 421, host


def test_pages_of_other_sites_may_not_ask(local):
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert problem(local.post("/v1/caption", picture(), headers=headers))["status"] == 403, headers
    own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert local.post("/v1/caption", picture(), headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert local.get("/", headers=link).status_code == 200, "a link to the page may be followed"
    assert "access-control-allow-origin" not in local.get("/", headers=own).headers


def test_each_answer_carries_the_policy(local):
    for answer in (local.get("/"), local.get("/nothing"), local.get("/", headers={"host": "evil.example"})):
        for name, value in POLICY.items():
            assert answer.headers[name] == value


def test_a_token_guards_all_but_the_health(local):
    token = Local(local.service, "sesame ö")
    assert token.get("/healthz").status_code == 200
    assert token.get("/readyz").status_code == 200
    assert [token.get(path).status_code for path in ("/healthzz", "/readyz/v1", "/healthz/")] == [401] * 3
    basic = base64.b64encode("anyone:sesame ö".encode()).decode()
    for path in ("/", "/docs", "/metrics", "/v1/models", "/openapi.json", "/page.js"):
        for wrong in (None, "Bearer", "Bearer wrong", "Basic !!!", "Basic " + base64.b64encode(b"x:wrong").decode()):
            refused = token.get(path, headers={} if wrong is None else {"authorization": wrong})
            assert problem(refused)["status"] == 401
            assert refused.headers["www-authenticate"].startswith("Basic")
            assert "sesame" not in refused.text
        assert token.get(path, headers={"authorization": f"Basic {basic}"}).status_code == 200
        header = "Bearer sesame ö".encode()
        assert token.get(path, headers={"authorization": header}).status_code == 200


def test_wrong_methods_and_addresses_are_problems(local):
    assert problem(local.get("/v1/caption"))["status"] == 405
    assert problem(local.get("/v1/nothing"))["status"] == 404
    assert problem(local.get("/..%2f..%2fetc%2fpasswd"))["status"] == 404
    assert problem(local.ask("POST", "/", content=io.BytesIO(b"a").read()))["status"] == 405
