"""A leading `~` is the home folder in every path that Python or the command line gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

import diptych
from diptych import cli
from diptych.api.job import Options, finetuning
from diptych.api.run import Plot


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (tmp_path / "work").mkdir()
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(tmp_path / "work")
    Image.new("RGB", (64, 64), "red").save(folder / "a.png")
    (folder / "data.jsonl").write_text(json.dumps({"image": "a.png", "captions": ["a red square"], "split": "train"}))
    return folder


def test_paths_in_python(home: Path) -> None:
    data = diptych.Dataset.read("~/data.jsonl", "~")
    rows = diptych.Dataset.from_rows([{"image": "~/a.png", "caption": "a red square"}])
    model = diptych.load("sample")
    with pytest.warns(diptych.UnfamiliarWarning):
        assert model.caption("~/a.png") == model.caption(home / "a.png")
    assert [one.image for one in data.records] == [home / "a.png"] == [one.image for one in rows.records]
    assert data.extract("~/store", detector=model).source == home / "store"
    assert model.push_to_hub("me/it", dry_run="~/card") == str(home / "card")
    Plot("<svg/>").save("~/plot.svg")
    with pytest.raises(diptych.DiptychError, match=f"{home}/none.onnx"):
        data.extract("~/other", detector="onnx:~/none.onnx")
    assert finetuning("caption", "~/store", "sample", None, Options("~/run")).out == home / "run"
    recipe = diptych.recipe("xgpt/small/text", settings={"data.text": "~/a.txt"})
    assert recipe.model_dump()["data"]["text"] == str(home / "a.txt")  # type: ignore[union-attr]
    with pytest.raises(diptych.DiptychError, match=f"no model at {home}/none"):
        diptych.load("~/none")
    assert not list(Path.cwd().iterdir())
    assert {path.name for path in home.iterdir()} >= {"store", "card", "plot.svg"}


@pytest.mark.parametrize("word", ["~/a b", "--out=~/a", "data.text=~/a", "a=~/a", "--detector=onnx:~/a", "tfjs:~/a"])
def test_paths_on_the_command_line(word: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(cli, "run_verb", lambda arguments, debug: taken.extend(arguments) or 0)
    monkeypatch.setattr("sys.argv", ["diptych", word, "what ~ is", "~", "a~/b", "--debug"])
    with pytest.raises(SystemExit):
        cli.main()
    assert taken == [word.replace("~", str(home)), "what ~ is", "~", "a~/b"]
