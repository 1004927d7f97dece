"""A verb says what it does before the imports that take seconds; then how long the rest takes."""

from pathlib import Path

import pytest

from diptych.cli import run_verb
from tests.support.first_line import first_line
from tests.support.service import make_model, picture

DATA = '{"image": "a.png", "captions": ["a dog"]}\n{"image": "b.png", "captions": ["a bird"]}\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("check", "data.jsonl", "--json"), "reading data.jsonl"),
        (("extract", "data.jsonl", "--out", "store", "--detector", "grid:resnet18"), "reading data.jsonl"),
        (("search", "a dog", "--images", "photos", "--model", "runs/search"), "opening runs/search"),
        (("caption", "a.png", "--model", "runs/captions"), "opening runs/captions"),
        (("ask", "a.png", "what is it", "--json", "--model=runs/answers"), "opening runs/answers"),
    ],
)
def test_the_first_line_comes_before_torch(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    assert first_line(tmp_path, *words) == f"{line}\n"


@pytest.mark.parametrize("verb", ["check", "caption"])
def test_the_time_left_is_told(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("diptych.runtime.progress.SPARSE_SECONDS", 0.0)
    for name in ("a", "b"):
        (tmp_path / f"{name}.png").write_bytes(picture("red" if name == "a" else "blue"))
    (tmp_path / "data.jsonl").write_text(DATA)
    words = {"check": ["data.jsonl"], "caption": ["*.png", "--model", str(tmp_path / "model"), "--out", "out.txt"]}
    if verb == "caption":
        make_model(tmp_path)
    run_verb([verb, *words[verb]], debug=True)
    said = capsys.readouterr().err
    counted = {"check": "checking 1/2 pictures, ", "caption": "predicting 1/2 answers, "}[verb]
    assert counted in said
    assert " left, until " in said
