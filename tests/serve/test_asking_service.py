"""`--server` in the verbs that search and match, and what they say without a model that has learnt it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from diptych.api.model import load
from diptych.cli import run_verb
from diptych.runtime.errors import UnsupportedError
from diptych_serve.service.pictures import PictureGallery
from diptych_serve.service.service import Service
from tests.support.service import listening, make_model, picture

MAKES = "diptych finetune retrieval --data DATA --model sample --out RUN"
TOWERS = "diptych finetune retrieval --from-scratch --recipe tden/small/retrieval --data STORE --out RUN"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for colour in ("red", "green", "blue"):
        (folder / f"{colour}.png").write_bytes(picture(colour))
    return folder


@pytest.fixture(scope="module")
def url(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        service = Service({"toy": make_model(tmp_path_factory.mktemp("toy"))}, PictureGallery(photos))
        with listening(service) as (host, port):
            yield f"http://{host}:{port}"


def test_a_service_searches_its_own_images(url: str, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_verb(["search", "a red kite", "--server", url, "--json"], debug=False) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert [line["score"] for line in lines] == sorted((line["score"] for line in lines), reverse=True)
    assert run_verb(["search", "a red kite", "--server", url, "--top-k", "1"], debug=False) == 0
    assert capsys.readouterr().out == f"{lines[0]['score']:.3f}  {lines[0]['picture']}\n"
    assert lines[0]["picture"].startswith(f"{url}/v1/pictures/")
    assert run_verb(["search", "a red kite", "--server", url, "--top-k", "300"], debug=False) == 2
    assert "search: --top-k: Input should be less than or equal to 100, found 300" in capsys.readouterr().err
    assert run_verb(["search", "", "--server", url], debug=False) == 2
    assert "search: QUERY: String should have at least 1 character" in capsys.readouterr().err
    caption = ["caption", str(next(photos.glob("*.png"))), "--server", url, "--num-captions", "300"]
    assert run_verb(caption, debug=False) == 2
    assert "caption: --num-captions: Input should be less than or equal to 16" in capsys.readouterr().err
    assert run_verb([*caption[:-2], "--min-words", "30", "--max-words", "20"], debug=False) == 1
    assert "diptych: --min-words 30 is more than --max-words 20" in capsys.readouterr().err
    assert run_verb(["search", "a red kite", "--server", url, "--model", "other"], debug=False) == 1
    assert "the model 'other' does not offer the task search; models for it: toy" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["match", "none.png", "a dog"], ["encode", "none.png", "--out", "v.npy"]])
def test_a_service_without_a_verb_is_named_with_those_that_it_has(
    words: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb([*words, "--server", url], debug=False) == 1
    assert f"{url} cannot {words[0]} (its verbs: caption, " in (said := capsys.readouterr().err)
    assert "search); pass --model instead of --server" in said


@pytest.mark.parametrize(
    ("words", "wanted"),
    [(["--images", "a"], "--images needs"), (["--device", "cpu", "--out", "a.png"], "--out and --device need")],
)
def test_what_needs_the_model_is_refused_with_a_service(
    words: list[str], wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_verb(["search", "a dog", "--server", "http://127.0.0.1:1", *words], debug=False) == 2
    assert f"{wanted} the model itself; pass --model instead of --server" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("match none.png dog", MAKES), ("search dog --images none", MAKES), ("encode none.png --out v.npy", TOWERS)],
)
def test_the_command_that_makes_a_model_is_named_without_one_and_for_one_that_cannot(
    words: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_verb(words.split(), debug=False) == 2
    assert wanted in capsys.readouterr().err
    Path("none").mkdir()
    Path("none.png").write_bytes(b"no image is opened")
    assert run_verb([*words.split(), "--model", "sample"], debug=False) == 1
    assert wanted in capsys.readouterr().err


def test_python_names_the_command_and_the_call_that_make_a_model() -> None:
    model = load("sample")
    for call in (lambda: model.search("a dog", "none"), lambda: model.match("none.png", "a dog")):
        with pytest.raises(UnsupportedError, match=MAKES) as error:
            call()
        assert 'in Python diptych.finetune("retrieval", data, "sample").model' in str(error.value)
    with pytest.raises(UnsupportedError, match=TOWERS):
        model.encode_image("none.png")
