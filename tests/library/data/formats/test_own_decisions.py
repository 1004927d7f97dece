"""Lines of a user's own about places, choices and statements, and what can be wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from diptych.data.formats import jsonl
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.parsing import Skips
from diptych.runtime.errors import DataError

POINTED = {"image": "a.png", "expression": "the dog", "box": [10, 20, 30, 40]}
TRUE = {"image": "a.png", "statement": "it rains", "true": True}
THINGS = {"image": "a.png", "objects": [{"kind": "dog", "box": [0, 0, 50, 50]}]}
CHOSEN = {"image": "a.png", "question": "why [0]", "choices": ["a", "b", "c", "[0]"], "answer": 3,
          "rationales": ["e", "f", "g", "h"], "rationale": 1}  # fmt: skip


def read(folder: Path, *lines: Any, skips: Skips | None = None) -> Any:
    (folder / "o.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return jsonl.read(Wanted(folder, "train", skips=Skips() if skips is None else skips), Source(folder / "o.jsonl"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Image.new("RGB", (100, 200)).save(tmp_path / "a.png")
    return tmp_path


def test_all_three_kinds(folder: Path) -> None:
    (record,) = read(folder, CHOSEN, POINTED, TRUE, THINGS)
    assert (record.size, record.expressions[0].box) == ((100, 200), (0.1, 0.1, 0.4, 0.3))
    assert (record.objects[0].kind, record.objects[0].box) == ("dog", (0.0, 0.0, 0.5, 0.25))
    assert (record.choices[0].answer, record.choices[0].rationale, record.statements[0].true) == (3, 1, True)
    (bare,) = read(folder, THINGS, {k: v for k, v in CHOSEN.items() if "rationale" not in k})
    assert (bare.choices[0].rationales, bare.choices[0].rationale) == ((), None)


def test_a_photo_that_lies_on_its_side_is_measured_upright(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (200, 100)).save(tmp_path / "a.png", exif=turned)
    (record,) = read(tmp_path, POINTED)
    assert record.size == (100, 200)


def test_without_pictures_the_line_says_how_large_it_is(tmp_path: Path) -> None:
    (tmp_path / "o.jsonl").write_text(json.dumps({**POINTED, "width": 100, "height": 100}))
    assert jsonl.read(Wanted(), Source(tmp_path / "o.jsonl"))[0].expressions[0].box == (0.1, 0.2, 0.4, 0.6)
    (tmp_path / "o.jsonl").write_text(json.dumps(POINTED))
    with pytest.raises(DataError, match="a box of a missing image, expected the image's `width` and `height`"):
        jsonl.read(Wanted(), Source(tmp_path / "o.jsonl"))


def test_a_picture_that_cannot_be_read_costs_its_boxes_alone(folder: Path) -> None:
    (folder / "b.png").write_bytes(b"x")
    skips = Skips()
    (record,) = read(folder, {**POINTED, "image": "b.png"}, POINTED, skips=skips)
    assert record.key == "a.png"
    assert skips.counts == {"boxes on images that cannot be read": 1}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{**POINTED, "box": [200, 0, 5, 5]}], "that overlaps the 100 x 200 pixels"),
        ([{**POINTED, "box": [1, 2, 3]}], "box: found a list of 3 items, expected 4 items"),
        ([{"image": "a.png", "expression": "x"}], "expected one with `box`"),
        ([{**POINTED, "expression": " "}], "found an empty text"),
        ([{**TRUE, "true": "maybe"}], r"true: found a text \(maybe\), expected true or false"),
        ([{"image": "a.png", "statement": "x"}], "expected one with `true`"),
        ([THINGS, {**CHOSEN, "choices": ["a", "b"]}], "choices: found a list of 2 items, expected 4 items"),
        ([THINGS, {**CHOSEN, "answer": 4}], "answer: found 4, expected 0, 1, 2 or 3"),
        ([THINGS, {**CHOSEN, "rationale": -1}], "rationale: found -1"),
        ([CHOSEN], r"found \[0\] in “why \[0\]”, expected one of the 0 objects of a.png"),
        ([THINGS, {**CHOSEN, "question": "is it [7]"}], r"found \[7\].*one of the 1 objects of a.png"),
        (
            [THINGS, {**THINGS, "objects": [{"kind": "cat", "box": [0, 0, 9, 9]}]}],
            "line 2: objects: found other objects",
        ),
        ([THINGS], "found nothing to train on"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(folder, *lines)


@pytest.mark.parametrize("box", [[0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], [0, 0.5, 1.0, 0.5], [0.6, 0.6, 0.45, 0.3]])
def test_a_box_in_fractions_is_refused_and_no_speck_in_the_corner(folder: Path, box: list[float]) -> None:
    with pytest.raises(DataError, match=r"which looks like fractions, expected pixels of the 100 x 200 image"):
        read(folder, {**POINTED, "box": box})
    skips = Skips()
    read(folder, POINTED, {**POINTED, "box": box}, {**THINGS, "objects": [{"kind": "dog", "box": box}]}, skips=skips)
    assert skips.counts["invalid entries"] == 2


def test_boxes_that_may_be_corners_are_counted(folder: Path) -> None:
    skips = Skips()
    (record,) = read(folder, {**POINTED, "box": [60, 50, 90, 100]}, {**POINTED, "box": [60, 50, 50, 100]}, skips=skips)
    assert [one.box for one in record.expressions] == [(0.6, 0.25, 1, 0.75)] * 2
    assert [count for what, count in skips.counts.items() if "far outside the image" in what] == [1]


def test_one_image_under_two_spellings_of_its_path_is_one_record(folder: Path) -> None:
    (record,) = read(folder, {"image": "./a.png", "captions": ["a dog"]}, {"image": "a.png", "captions": ["a cat"]})
    assert (record.key, record.captions) == ("a.png", ("a dog", "a cat"))


def test_an_image_of_two_shapes_is_refused(folder: Path) -> None:
    skips = Skips()
    (record,) = read(folder, POINTED, {**POINTED, "width": 200, "height": 100}, skips=skips)
    assert (len(record.expressions), skips.counts) == (1, {"invalid entries": 1})
    (record,) = read(folder, POINTED, {**POINTED, "width": 50, "height": 100})
    assert len(record.expressions) == 2, "half as large"
