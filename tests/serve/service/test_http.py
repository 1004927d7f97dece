"""What the service takes as HTTP (RFC 9110, 9112), on real connections: requests that two servers read differently, \
heads, methods, limits."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from threading import Event
from typing import Any

import pytest

from benchmarks.hostile_images import jpeg_of_many_scans, plain_ppm, tiff_of_one_tile
from diptych.inference.client import is_loopback
from diptych.inference.predictor import Predictor
from diptych.runtime.errors import GalleryError
from diptych.vision.decoder import Decoders
from diptych_serve.service import protocol
from diptych_serve.service.limits import Limits
from diptych_serve.service.pictures import PictureGallery
from diptych_serve.service.service import Service
from diptych_serve.service.uploads import NICE
from tests.support.service import Local, listening, make_model, picture, problem

Address = tuple[str, int]
HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
POST = b"POST /v1/caption HTTP/1.1\r\n" + HOST
SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return make_model(tmp_path_factory.mktemp("http"))


@pytest.fixture(scope="module")
def service(model: Predictor) -> Service:
    return Service({"toy": model})


@pytest.fixture(scope="module")
def address(service: Service) -> Iterator[Address]:
    with listening(service) as at:
        yield at


@pytest.fixture(scope="module")
def local(model: Predictor) -> Local:
    return Local(Service({"toy": model}))


def send(address: Address, sent: bytes, wait: float = 10.0) -> bytes:
    """All that comes back until the service ends the connection, or is silent for `wait` seconds."""
    received = b""
    with socket.create_connection(address, timeout=wait) as one:
        with suppress(ConnectionResetError, BrokenPipeError):
            one.sendall(sent)
        with suppress(ConnectionResetError, TimeoutError):
            while more := one.recv(65536):
                received += more
    return received


def statuses(received: bytes) -> list[int]:
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit() and part[3:4] == b" "]


AMBIGUOUS = {
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": GET + HOST + b"\r\n",
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "lengths in a list": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "length with a sign": POST + b"Content-Length: +5\r\n\r\nhello",
    "hexadecimal length": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "negative length": POST + b"Content-Length: -5\r\n\r\n",
    "huge length": POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n",
    "unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding after chunked": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunks in 1.0": b"POST /v1/caption HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "space before the colon": GET + b"Content-Length : 5\r\n\r\n",
    "folded header": GET + b"X-One: a\r\n b\r\n\r\n",
    "fold before all headers": b"GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "bare LF": b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    "bare LF after a header": GET + b"X-One: a\n\r\n",
    "bare CR": GET + b"X-One: a\rX-Two: b\r\n\r\n",
    "zero byte": GET + b"X-One: a\0b\r\n\r\n",
    "header without a name": GET + b": a\r\n\r\n",
    "chunk size with a sign": POST + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
    "chunk size of 17 digits": POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
    "chunk that is longer than its size": POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
    "chunk that ends in LF": POST + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
    "HTTP 0.9": b"GET /healthz\r\n\r\n",
    "HTTP 2.0": b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n",
    "preface of HTTP 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "many headers": GET + b"".join(b"X-%d: a\r\n" % number for number in range(8000)) + b"\r\n",
    "one long header": GET + b"X-One: " + b"a" * 70_000 + b"\r\n\r\n",
    "long address": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303"),
}


@pytest.mark.parametrize("sent", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_ambiguous_requests_are_refused_and_end_the_connection(address: Address, sent: bytes) -> None:
    received = send(address, sent + SMUGGLED)
    assert statuses(received) in ([400], [])  # or reset, where more had arrived than was read
    assert b"diptych_" not in received, "the second request was answered"
    if received:
        head, _, body = received.partition(b"\r\n\r\n")
        assert b"connection: close" in head.lower()
        assert b"content-type: application/problem+json" in head.lower()
        assert json.loads(body)["status"] == 400
    assert statuses(send(address, GET + b"Connection: close\r\n\r\n")) == [200]


def test_pipelined_requests_are_answered_in_order(address: Address) -> None:
    received = send(
        address, GET + b"\r\n" + GET.replace(b"healthz", b"nothing") + b"\r\n" + GET + b"Connection: close\r\n\r\n"
    )
    assert statuses(received) == [200, 404, 200]


def test_garbage_after_a_request_does_not_change_its_answer(address: Address) -> None:
    received = send(address, GET + b"\r\n\0garbage", wait=3)
    assert statuses(received) in ([200], [200, 400])


def test_what_expects_100_continue_gets_it(address: Address) -> None:
    body = b'{"image": 5}'
    head = POST + b"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(address, timeout=10) as one:
        one.sendall(head)
        assert one.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(body)
        assert one.recv(1000).startswith(b"HTTP/1.1 422")


def test_a_refusal_before_the_body_needs_no_100_continue(address: Address) -> None:
    head = POST + b"Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n"
    assert statuses(send(address, head)) == [413]


def test_chunks_and_http_1_0_are_read(address: Address) -> None:
    chunked = POST + b"Content-Type: application/json\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert statuses(send(address, chunked + b"2;a=b\r\n{}\r\n0\r\nX-After: 1\r\n\r\n")) == [422]
    assert statuses(send(address, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")) == [200]


def test_an_upgrade_is_answered_as_http(address: Address) -> None:
    wanted = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert statuses(send(address, GET + wanted, wait=3)) == [200]


@pytest.mark.parametrize("path", ["/healthz", "/", "/v1/models", "/page.js"])
def test_head_is_get_without_the_body(address: Address, path: str) -> None:
    rest = f"{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    got, head = send(address, b"GET " + rest), send(address, b"HEAD " + rest)
    fields, _, body = got.partition(b"\r\n\r\n")
    assert body
    undated = [[line for line in one.split(b"\r\n") if not line.startswith(b"date")] for one in (fields, head[:-4])]
    assert undated[0] == undated[1]
    assert head.endswith(b"\r\n\r\n")


def test_405_names_the_methods(local: Local) -> None:
    assert local.get("/v1/caption").headers["allow"] == "POST"
    assert set(local.ask("DELETE", "/healthz").headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_too_many_connections_leave_health_checks_alone(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "PER_CLIENT", 8)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection(address, timeout=10))
        time.sleep(0.3)
        assert statuses(send(address, GET + b"Connection: close\r\n\r\n")) == [200]
        crowded = send(address, b"GET /v1/models HTTP/1.1\r\n" + HOST + b"\r\n")
    assert statuses(crowded) == [503]
    assert b"retry-after: 5" in crowded.lower()
    deadline = time.monotonic() + 10
    while statuses(send(address, b"GET /v1/models HTTP/1.0\r\n" + HOST + b"\r\n")) != [200]:
        assert time.monotonic() < deadline


def connected(address: Address, client: str) -> socket.socket:
    one = socket.socket()
    one.settimeout(10)
    one.bind((client, 0))
    one.connect(address)
    return one


def test_connections_of_one_client_refuse_no_other(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "PER_CLIENT", 4)
    monkeypatch.setattr(protocol, "CONNECTIONS", 6)
    ask = b"GET /v1/models HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(address, "127.0.0.2")) for _ in range(20)]
        time.sleep(0.3)
        other = stack.enter_context(connected(address, "127.0.0.3"))
        other.sendall(ask)
        assert statuses(other.recv(1000)) == [200]
        assert statuses(send(address, GET + b"Connection: close\r\n\r\n")) == [200]
        for one in idle[:12]:  # of one address, twice as many as may ask are kept: the newest
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
        idle[-1].sendall(ask)
        assert statuses(idle[-1].recv(1000)) == [503]


def test_refusals_to_an_address_are_paced() -> None:
    pace = protocol.Pace()
    waits = [pace.delay("a", 100.0) for _ in range(protocol.BURST + 80)]
    assert waits[: protocol.BURST] == [0.0] * protocol.BURST
    assert waits[protocol.BURST + 10] == pytest.approx(1.0)
    assert max(waits) == pytest.approx(protocol.LONGEST)
    assert pace.delay("b", 100.0) == 0.0
    assert pace.delay("a", 100.0 + protocol.LONGEST) == pytest.approx(0.0)
    assert pace.delay("a", 200.0) == 0.0


def test_what_is_not_refused_is_not_delayed(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    delayed: list[str | None] = []
    monkeypatch.setattr(protocol.Pace, "delay", lambda _, client, now: delayed.append(client) or 0.0)
    closed = b"Connection: close\r\n\r\n"
    assert statuses(send(address, GET + closed)) == [200]
    assert delayed == []
    assert statuses(send(address, AMBIGUOUS["two hosts"])) == [400]
    assert statuses(send(address, GET.replace(b"healthz", b"nothing") + closed)) == [404]
    assert delayed == ["127.0.0.1"] * 2


def test_bodies_in_flight_have_a_limit_together(model: Predictor) -> None:
    service = Service({"toy": model}, limits=Limits(arriving_bytes=100_000))
    part = POST + b"Content-Type: application/json\r\nContent-Length: 90000\r\n\r\n" + b" " * 60_000
    with listening(service) as at, socket.create_connection(at, timeout=10) as first:
        first.sendall(part)
        time.sleep(0.5)
        second = send(at, part)
        assert statuses(second) == [503]
        assert b"retry-after: 1" in second.lower()
        first.sendall(b" " * 30_000)
        assert statuses(first.recv(1000)) == [422]
        alone = part.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert statuses(send(at, alone + b" " * 30_000)) == [422], "the bytes of ended requests are given back"


@pytest.mark.parametrize(
    "body",
    [
        b'{"question": [' + b"1," * 1_000_000 + b"1]}",
        b'{"a": ' + b"[" * 400_000,
        b"{" + b",".join(b'"%d": 1' % number for number in range(100_000)) + b"}",
    ],
    ids=["items", "depth", "keys"],
)
def test_json_of_many_items_costs_little(local: Local, body: bytes) -> None:
    begun = time.process_time()
    answer = local.post("/v1/ask", content=body, headers={"content-type": "application/json"})
    assert problem(answer)["detail"] == "the JSON has more than 10,000 commas and opening brackets"
    assert answer.status_code == 422
    assert time.process_time() - begun < 2


def test_an_object_of_many_keys_is_not_validated(local: Local) -> None:
    body = b"{" + b",".join(b'"%d": 1' % number for number in range(9000)) + b"}"
    answer = local.post("/v1/ask", content=body, headers={"content-type": "application/json"})
    assert problem(answer)["detail"] == "the JSON has 9,000 fields; expected at most 64"


def test_json_may_begin_with_a_mark(local: Local) -> None:
    body, kind = '{"question": 3}', {"content-type": "application/json"}
    plain, marked = (local.post("/v1/ask", content=body.encode(one), headers=kind) for one in ("utf-8", "utf-8-sig"))
    assert problem(plain) == problem(marked)


def test_another_content_type_is_named(local: Local) -> None:
    answer = local.post("/v1/ask", content=b"x", headers={"content-type": "text/plain"})
    assert problem(answer)["status"] == 415
    assert problem(answer)["detail"].startswith("found content type 'text/plain'; expected multipart/form-data")


def test_images_of_the_gallery_are_decoded_by_processes(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    gallery = PictureGallery(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("diptych.vision.image_files._opened", lambda *_: pytest.fail("decoded in this process"))
        assert gallery.shown(gallery.first()[0][0]) is not None


@pytest.mark.parametrize(
    "content",
    [lambda: jpeg_of_many_scans(3000, 200), lambda: tiff_of_one_tile(9000), lambda: plain_ppm(1100, 1000)],
    ids=["scans", "tile", "text"],
)
def test_costly_images_are_refused(local: Local, content: Callable[[], bytes]) -> None:
    assert "reading it costs as much as" in problem(local.post("/v1/caption", content()))["detail"]


def test_an_image_that_decodes_too_long_is_refused_and_the_next_is_answered(model: Predictor) -> None:
    local = Local(Service({"toy": model}, limits=Limits(decoding=0.3, pixels=64_000_000)))
    refused = local.post("/v1/caption", jpeg_of_many_scans(7900, 14))
    assert "took more than 0.3 seconds" in problem(refused)["detail"]
    assert local.post("/v1/caption", picture()).status_code == 200
    local.service.stop()


def test_a_costly_image_holds_up_no_other(model: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is decoded by another process, of low priority, which is held here until a cheap one was answered."""
    local, read = Local(Service({"toy": model}, limits=Limits(decoders=1, quick_pixels=2500))), Decoders.read
    begun, answered = Event(), Event()

    def held(self: Decoders, file: bytes, name: str, most_pixels: int) -> Any:
        if self.nice == NICE:
            begun.set()
            assert answered.wait(60)
        return read(self, file, name, most_pixels)

    monkeypatch.setattr(Decoders, "read", held)
    with ThreadPoolExecutor(1) as pool:
        costly = pool.submit(local.post, "/v1/caption", picture(size=(60, 60)))
        assert begun.wait(60)
        assert local.post("/v1/caption", picture(size=(40, 40))).status_code == 200
        answered.set()
        assert costly.result().status_code == 200
    local.service.stop()


@pytest.mark.parametrize("field", ["temperature", "top_p"])
def test_a_tiny_temperature_is_refused(local: Local, field: str) -> None:
    answer = local.post("/v1/caption", picture(), data={"sample": "true", field: "1e-300"})
    assert problem(answer)["where"] == field


@pytest.mark.parametrize("charset", ["unicode_escape", "punycode", "utf-16", "no-such"])
def test_forms_are_utf_8(local: Local, charset: str) -> None:
    form = b'--x\r\nContent-Disposition: form-data; name="question"\r\n\r\n\\ud800\r\n--x--\r\n'
    kind = f"multipart/form-data; boundary=x; charset={charset}"
    answer = local.post("/v1/ask", content=form, headers={"content-type": kind})
    assert problem(answer)["status"] == 415
    assert f"found charset '{charset}'" in problem(answer)["detail"]


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("localhost", True), ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("127.evil.example", False),
     ("localhost.evil.example", False), ("0.0.0.0", False), ("::", False)],
)  # fmt: skip
def test_loopback_is_an_address(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local


def test_a_gallery_whose_database_is_away_ends_the_start(model: Predictor, tmp_path, monkeypatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise GalleryError("the database does not answer")

    (tmp_path / "a.png").write_bytes(picture())
    monkeypatch.setattr(Predictor, "search", away)
    service = Service({"toy": model}, PictureGallery(tmp_path, "postgresql://localhost/none"))
    service.tasks = {"toy": ("search",)}
    with pytest.raises(GalleryError, match="does not answer"):
        service.warm()
