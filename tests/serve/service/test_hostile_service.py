"""`diptych caption --server` beside what answers as no service of ours does: a sentence, and nothing goes elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from diptych.cli import main
from diptych.inference import client as clients
from diptych.inference.client import Client
from diptych.runtime.errors import DataError, ServingError
from diptych.tasks import CAPTION
from diptych.tasks.caption import CaptionRequest
from tests.support.service import picture

Answer = Callable[[BaseHTTPRequestHandler], None]
WRITTEN = json.dumps({"picture": "a", "caption": "a\x1b[2Jkite\u2028x", "score": -1.0}).encode()


class Stub:
    """Answers every request in one way, and keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, str | None]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                stub.asked.append((self.path, self.headers.get("Authorization")))
                self.rfile.read(int(self.headers["Content-Length"]))
                answer(self)

            do_GET = do_POST  # as http.server has it

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def stub() -> Iterator[Callable[[Answer], Stub]]:
    made: list[Stub] = []

    def make(answer: Answer) -> Stub:
        made.append(Stub(answer))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    (tmp_path / "a.png").write_bytes(picture())
    return tmp_path / "a.png"


def answer(status: int, body: bytes = b"", length: int | None = None, **headers: str) -> Answer:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    return send


def test_picture_and_token_go_to_no_other_place(stub, photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIPTYCH_TOKEN", "secret")
    other = stub(answer(200, WRITTEN))
    for status in (301, 302, 303, 307, 308):
        one = stub(answer(status, Location=f"{other.url}/v1/caption"))
        with pytest.raises(ServingError, match=rf"answered {status}: it redirects to '{other.url}/v1/caption'"):
            Client(one.url).ask(CAPTION.required_interface, photo, CaptionRequest())
        assert one.asked == [("/v1/caption", "Bearer secret")]
    assert other.asked == []


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (answer(200, b"[" * 100_000), "no valid answer from .*recursion limit"),
        (answer(200, b"{}"), "is not a service of this version"),
        (answer(200, b"[]"), "is not a service of this version"),
        (answer(200, b'{"caption": "\\ud800", "score": 0, "picture": "a"}'), "no valid answer from .*hex escape"),
        (answer(200, WRITTEN[:-5], length=10**6), "no valid answer from .*EOF"),
        (answer(200, b" " * 2_000), "no valid answer from .*more than 0 MiB"),
        (lambda handler: handler.wfile.write(b"\x00garbage\r\n\r\n"), "no valid answer from"),
        (answer(500, b'{"detail": ["' + b"x" * 900 + b'"]}'), r"answered 500: \['xxx"),
        (answer(500, b"[" * 1_000), "answered 500: Internal Server Error"),
    ],
)  # fmt: skip
def test_an_answer_of_no_service_is_a_sentence(
    stub, photo: Path, monkeypatch: pytest.MonkeyPatch, said: Answer, match: str
) -> None:
    monkeypatch.setattr(clients, "LONGEST_RESPONSE", 1_000 if "more than" in match else 10**6)
    with pytest.raises(ServingError, match=match) as raised:
        Client(stub(said).url).ask(CAPTION.required_interface, photo, CaptionRequest())
    assert len(str(raised.value)) < 1_500


@pytest.mark.parametrize("after", ["soon", "-1", "nan", "1e9", "9" * 5_000, "999"])
def test_it_is_asked_again_after_seconds_alone(stub, photo: Path, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    slept: list[float] = []
    monkeypatch.setattr(clients.time, "sleep", slept.append)
    one = stub(answer(503, b'{"detail": "full"}', Retry_After=after))
    with pytest.raises(ServingError, match="answered 503: full"):
        Client(one.url).ask(CAPTION.required_interface, photo, CaptionRequest())
    assert slept == [10.0 if after == "999" else 1.0] * (clients.TRIES - 1)


def test_what_it_says_moves_no_cursor(
    stub, photo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = (answer(200, WRITTEN), answer(422, b'{"detail": "\\u001b[2J no"}'), answer(500, b'{"detail": "\\u001b[2J"}'))
    for code, one in zip((0, 1, 1), said, strict=True):
        monkeypatch.setattr("sys.argv", ["diptych", "caption", str(photo), "--server", stub(one).url])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
        printed = capsys.readouterr()
        assert "\\x1b[2J" in printed.out + printed.err
        assert "\x1b" not in printed.out + printed.err
        assert (printed.out + printed.err).isascii()


def test_a_refusal_is_of_the_picture(stub, photo: Path) -> None:
    with pytest.raises(DataError, match=r"too large \(.*a\.png\)"):
        Client(stub(answer(413, b'{"detail": "too large"}')).url).ask(
            CAPTION.required_interface, photo, CaptionRequest()
        )
