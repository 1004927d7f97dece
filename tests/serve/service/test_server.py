"""A service as a process: its end, its port, its token, slow clients, and the command line that asks it."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from benchmarks.clients import form
from benchmarks.faults import Attack, small_picture
from diptych.cli import app
from diptych.inference.client import Client
from diptych.inference.predictor import Predictor
from diptych.runtime.errors import DataError, RecipeError, ServingError
from diptych.tasks import CAPTION
from diptych.tasks.caption import CaptionRequest
from diptych_serve.service import protocol, server
from diptych_serve.service.service import Service
from tests.support.server_process import Process
from tests.support.service import listening, make_model, picture


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return make_model(tmp_path_factory.mktemp("server"))


@pytest.fixture
def address(model: Predictor, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A real server, in a thread; whoever is slower than a second is cut off."""
    monkeypatch.setattr(protocol, "PATIENCE", 1.0)
    with listening(Service({"toy": model})) as address:
        yield address


def good(address: tuple[str, int]) -> float:
    """Seconds of a request that is answered."""
    begun = time.monotonic()
    url = f"http://127.0.0.1:{address[1]}/v1/caption"
    answer = httpx2.post(url, files={"image": ("a.png", picture())}, timeout=20, trust_env=False)
    assert answer.status_code == 200
    return time.monotonic() - begun


HEAD = b"POST /v1/caption HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"


@pytest.mark.parametrize("sent", [b"", b"POST /v1", HEAD, HEAD + b"\r\n", HEAD + b"\r\n{", HEAD + b"\r\n" + b"x" * 999])
def test_whoever_stops_in_the_middle_of_a_request_is_cut_off(address, sent):
    with socket.create_connection(address, timeout=10) as slow:
        slow.sendall(sent)
        good(address)
        with suppress(ConnectionResetError):
            while slow.recv(1000):  # a refusal, where the head had come; then the end
                pass


def test_whoever_drips_is_cut_off(address):
    with socket.create_connection(address, timeout=10) as slow:
        slow.sendall(HEAD + b"\r\n")
        assert drip(slow, 40) < 40
        good(address)


def drip(slow: socket.socket, most: int) -> int:
    """How many bytes could be sent, ten a second."""
    for sent in range(most):
        try:
            slow.sendall(b"x")
        except OSError:
            return sent
        time.sleep(0.1)
    return most


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00" * 3000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"G" * 70_000,
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused_and_the_next_is_answered(address, sent):
    with socket.create_connection(address, timeout=10) as wild:
        try:
            wild.sendall(sent)
            assert wild.recv(1000).startswith(b"HTTP/1.1 4")
        except (ConnectionResetError, BrokenPipeError):
            pass
    good(address)


def test_what_the_benchmark_of_faults_sends_is_refused_and_harms_nobody(address):
    async def send() -> tuple[Attack, Counter[int], dict[str, int]]:
        one = Attack(address, form(small_picture()), patience=60)
        bodies, shaped = await one.bodies(40), await one.shaped()
        one.connection.close()
        return one, bodies, shaped

    one, bodies, shaped = asyncio.run(send())
    assert one.faults == []
    assert sum(bodies.values()) == 40
    assert set(bodies) <= {0, 200, 413, 415, 422}
    assert shaped["a bomb of 60,000 by 60,000 pixels"] == 413
    assert shaped["a path as the name of a picture"] == 200


def test_the_command_line_asks_a_running_service(address, model, tmp_path, capsys):
    (tmp_path / "photos").mkdir()
    for colour in ("red", "green", "blue"):
        (tmp_path / "photos" / f"{colour}.png").write_bytes(picture(colour))
    (tmp_path / "photos" / "text.jpg").write_text("no picture")
    words = ["caption", str(tmp_path / "photos"), "--json", "--num-captions", "2", "--max-words", "5"]
    with pytest.raises(DataError, match="1 of 4 images failed"):
        app([*words, "--server", f"http://127.0.0.1:{address[1]}"], standalone_mode=False)
    asked = capsys.readouterr()
    with pytest.raises(DataError, match="1 of 4 images failed"):
        app([*words, "--model", str(model.folder.folder)], standalone_mode=False)
    opened = capsys.readouterr()
    assert "does not hold an image" in asked.err
    one, other = ([json.loads(line) for line in said.splitlines()] for said in (asked.out, opened.out))
    assert len(one) == 3
    for line, there in zip(one, other, strict=True):
        assert line.keys() == there.keys()
        assert (line["picture"], line["caption"]) == (there["picture"], there["caption"])
        assert line["score"] == pytest.approx(there["score"], rel=1e-3)


def test_a_client_says_what_is_wrong(address, tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(picture())
    with pytest.raises(ServingError, match="is not the address of a service"):
        Client("localhost:8000")
    with pytest.raises(ServingError, match="is not the address of a service"):
        Client("http://[::1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ServingError, match=r"no valid answer from .*; run: diptych serve MODEL"):
        Client(f"http://127.0.0.1:{port}").ask(CAPTION.required_interface, tmp_path / "a.png", CaptionRequest())
    client = Client(f"http://127.0.0.1:{address[1]}")
    with pytest.raises(DataError, match="cannot read the image"):
        client.ask(CAPTION.required_interface, tmp_path / "none.png", CaptionRequest())
    with pytest.raises(DataError, match="the model 'other' does not offer the task caption; models for it: toy"):
        client.ask(CAPTION.required_interface, tmp_path / "a.png", CaptionRequest(model="other"))
    with pytest.raises(RecipeError, match=r"--model FOLDER \(or --server URL"):
        app(["caption", str(tmp_path)], standalone_mode=False)
    with pytest.raises(RecipeError, match="pass --model instead of --server"):
        app(["caption", str(tmp_path), "--server", "http://localhost", "--show", "x"], standalone_mode=False)


def admitted(url: str) -> int:
    """Requests that wait or were answered; the one being answered is neither."""
    lines = httpx2.get(f"{url}/metrics", trust_env=False).text.splitlines()
    counted = ("diptych_queue_requests ", 'diptych_requests_total{status="200",task="caption"} ')
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(counted))


def test_what_was_begun_is_ended_when_the_process_is_told_to_stop(model):
    made = Process(str(model.folder.folder), "--batch-size", "1", "--deadline", "20")
    data = {"captions": "16", "beams": "16", "max_words": "30", "explain": "true"}

    def ask(_: int) -> Any:
        try:
            files = {"image": ("a.png", picture())}
            return httpx2.post(f"{made.url}/v1/caption", files=files, data=data, timeout=60, trust_env=False)
        except httpx2.ConnectError as error:
            return error

    with ThreadPoolExecutor(4) as threads:
        ask(0)
        asked = [threads.submit(ask, number) for number in range(4)]
        waited = time.monotonic()
        while admitted(made.url) < 4:  # all but the one that is being answered: a connection not yet taken may be reset
            assert time.monotonic() - waited < 20
        code, took = made.end()
        answers = [one.result() for one in asked]
    assert code == 0, "".join(made.lines)
    assert took < 22
    assert [answer.status_code for answer in answers] == [200] * 4
    assert "Traceback" not in "".join(made.lines)


def test_a_service_for_other_machines_wants_a_token(model, tmp_path, monkeypatch):
    monkeypatch.delenv("DIPTYCH_TOKEN", raising=False)
    folder = str(model.folder.folder)
    with pytest.raises(RecipeError, match=r"--host 0.0.0.0 is open to other machines, but there is no token"):
        app(["serve", folder, "--host", "0.0.0.0"], standalone_mode=False)
    (tmp_path / "token").write_text("\n")
    with pytest.raises(RecipeError, match="is empty; write the token"):
        app(["serve", folder, "--token-file", str(tmp_path / "token")], standalone_mode=False)
    with pytest.raises(RecipeError, match="cannot read --token-file"):
        app(["serve", folder, "--token-file", str(tmp_path / "none")], standalone_mode=False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_token_that_notepad_saved_is_read(model, tmp_path, monkeypatch, encoding):
    def made(service, token, *more):
        service.stop()
        raise RecipeError(f"the token is {token!r}")

    monkeypatch.setattr(server, "make_server", made)
    (tmp_path / "token").write_bytes("secret\r\n".encode(encoding))
    given = ["serve", str(model.folder.folder), "--port", "0", "--token-file", str(tmp_path / "token")]
    with pytest.raises(RecipeError, match="the token is 'secret'"):
        app(given, standalone_mode=False)


def test_a_port_that_is_taken_is_told(model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServingError, match=rf"cannot listen on 127.0.0.1:{port}: .*; pass a free --port"):
            app(["serve", str(model.folder.folder), "--port", str(port)], standalone_mode=False)


def test_a_folder_without_images_is_refused_without_a_model_that_searches(tmp_path):
    make_model(tmp_path, ["word"])
    with pytest.raises(DataError, match=r"found no image in .*nowhere; pass a folder of images"):
        app(
            ["serve", str(tmp_path / "model"), "--images", str(tmp_path / "nowhere"), "--port", "0"],
            standalone_mode=False,
        )


def test_a_missing_extra_is_one_sentence(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "diptych_serve.service.server")
    with pytest.raises(RecipeError, match="a service needs uvicorn, of the extra `serve`"):
        app(["serve", str(model.folder.folder)], standalone_mode=False)
