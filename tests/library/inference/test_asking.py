"""The verbs that ask a model about images: IMAGE is a file, a folder or a pattern; each result is a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from diptych.cli import run_verb
from diptych.inference import drawing
from diptych.inference.drawing import draw_box
from diptych.systems import find_recipe
from tests.support import zygote
from tests.support.service import make_model, picture

COLOURS = ("blue", "green", "red")
ASKED = {  # the arguments after IMAGE, and the results of an image
    "caption": ((), 1),
    "ask": (("what is it", "how many"), 2),
    "ground": (("the dog",), 1),
    "choose": (("what is it", "a dog", "a bird", "--rationale", "it barks", "--rationale", "it flies"), 1),
    "verify": (("there are two dogs",), 1),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_model(tmp_path_factory.mktemp("asked")).folder.folder)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for colour in COLOURS:
        (tmp_path / "photos" / f"{colour}.png").write_bytes(picture(colour))
    return tmp_path / "photos"


@pytest.mark.parametrize("image", ["photos", "photos/*.png"])
@pytest.mark.parametrize("verb", ASKED)
def test_an_image_is_a_folder_or_a_pattern(
    verb: str, image: str, photos: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, each = ASKED[verb]
    assert run_verb([verb, image, *words, "--model", model], debug=False) == 0
    lines = capsys.readouterr().out.splitlines()
    wanted = [f"photos/{colour}.png" for colour in COLOURS for _ in range(each)]
    assert [line.partition(": ")[0] for line in lines] == wanted


def test_a_word_that_the_model_does_not_know_is_named_once(
    photos: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ask", "photos", "what is the 麒麟", "what is it", "--model", model]
    assert run_verb([*words, "--json"], debug=False) == 0
    said = capsys.readouterr()
    assert said.err.partition("\n")[2] == "diptych: the model does not know 麒麟\n"
    answers = [json.loads(line) for line in said.out.splitlines()]
    assert [one.get("unread") for one in answers] == ["the model does not know 麒麟", None] * 3
    ended = zygote.run(["-m", "diptych.cli", "match", "photos", "a 麒麟", "--model", model])
    assert (ended.stderr, ended.returncode) == ("diptych: the model does not know 麒麟\n", 0)


@pytest.mark.parametrize("verb", ASKED)
def test_images_that_fail_do_not_stop_the_others(
    verb: str, photos: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "green.png").write_text("no picture")
    words, each = ASKED[verb]
    assert run_verb([verb, "photos", *words, "--model", model, "--json", "--out", "answers.jsonl"], debug=False) == 1
    said = capsys.readouterr()
    assert "1 of 3 images failed" in said.err
    lines = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    assert [line["picture"] for line in lines] == [f"photos/{c}.png" for c in ("blue", "red") for _ in range(each)]


def test_a_sheet_of_hits_is_not_written_among_the_images(
    photos: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["search", "a kite", "--images", "photos", "--model", model, "--out"]
    assert run_verb([*words, "photos/../photos/sheet.png"], debug=False) == 2
    assert "is in --images photos, so the next search would rank it" in capsys.readouterr().err
    assert sorted(path.stem for path in photos.iterdir()) == list(COLOURS)


def test_a_sheet_of_hits_is_a_png(photos: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "a kite", "--images", "photos", "--model", model, "--out", "sheet.jpg"]
    assert run_verb(words, debug=False) == 2
    assert "--out sheet.jpg: the images are written as PNG; pass a name such as sheet.png" in capsys.readouterr().err


def test_a_name_that_is_not_utf_8_loses_no_answer(photos: Path, model: str) -> None:
    os.rename("photos/red.png", b"photos/red\xff.png")
    assert run_verb(["caption", "photos", "--model", model, "--json", "--out", "a.jsonl"], debug=False) == 0
    names = [json.loads(line)["picture"] for line in Path("a.jsonl").read_text("utf-8").splitlines()]
    assert names == ["photos/blue.png", "photos/green.png", os.fsdecode(b"photos/red\xff.png")]


def test_boxes_are_drawn_only_when_asked_for(photos: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []

    def draw(picture: Any, box: Any, title: str) -> Image.Image:
        titles.append(title)
        return draw_box(picture, box, title)

    monkeypatch.setattr(drawing, "draw_box", draw)
    assert run_verb(["ground", "photos/red.png", "the dog", "--model", model], debug=False) == 0
    assert [path.name for path in photos.parent.iterdir()] == ["photos"]
    assert run_verb(["ground", "photos", "the dog", "--model", model, "--show", "shown"], debug=False) == 0
    assert sorted(path.stem for path in Path("shown").glob("*.png")) == list(COLOURS)
    assert titles == ["the dog"] * len(COLOURS)


@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [(("caption", "photos", "--seed", "9" * 40), 2, "less than or equal to 9223372036854775807"),
     (("caption", "none.png", "--beams", "300"), 2, "caption: --beams: Input should be less than or equal to 16"),
     (("caption", "none.png", "--top-p", "3"), 2, "caption: --top-p: Input should be less than or equal to 1, found"),
     (("caption", "photos", "--top-k", "5", "--beams", "3"), 2, "cannot be combined with beam search (--beams 3"),
     (("caption", "photos", "--server", "http://[::1"), 1, "is not the address of a service"),
     (("ask", "photos/red.png", os.fsdecode(b"caf\xe9")), 1, "is not UTF-8 at character 3"),
     (("caption", "none"), 1, "none"), (("caption", "none*.png"), 1, "no images")],
)  # fmt: skip
def test_bad_input_is_named(
    words: tuple[str, ...], code: int, wanted: str, photos: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = () if "--server" in words else ("--model", model)
    assert run_verb([*words, *given], debug=False) == code
    said = capsys.readouterr().err
    assert (wanted in said, "fault of Diptych" in said) == (True, False), said


def test_a_folder_without_images_is_named_by_what_it_is(
    photos: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("a dog")
    for folder, wanted in {
        "texts": ": found a.txt, expected files such as .png",
        model: ", which is a run or model",
    }.items():
        assert run_verb(["caption", folder, "--model", model], debug=False) == 1
        assert capsys.readouterr().err.startswith(f"opening {model}\ndiptych: no images in {folder}{wanted}")


def test_a_model_of_another_task_is_not_asked_for_captions(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_model(tmp_path).folder
    answering = replace(folder, recipe=find_recipe("unified-vlp/small/vqa", [])).save(tmp_path / "vqa")
    assert run_verb(["caption", "photos/red.png", "--model", str(answering.folder)], debug=False) == 1
    assert "was trained for vqa and cannot caption" in capsys.readouterr().err


def test_a_closed_standard_output_gives_no_traceback() -> None:
    # an interpreter: the shell closes its output
    command = f"{sys.executable} -m diptych.cli data >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
