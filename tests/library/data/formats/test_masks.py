"""Outlines become the cells of a box, from the file to the store."""

import json
from pathlib import Path

import torch
from PIL import Image

from diptych.core import MASK_CELLS
from diptych.data.extract.own_data import extract_regions
from diptych.data.formats import jsonl, vcr
from diptych.data.formats.format import Source, Wanted
from diptych.data.formats.masks import mask_of
from diptych.data.store.store import Store
from diptych.vision.detectors.ground_truth import GroundTruth
from diptych.vision.detectors.load import load_detector

TRIANGLE = [[0, 0], [39, 0], [0, 39]]
UPPER = [[0, 0], [40, 0], [40, 20], [0, 20]]  # half of the box


def test_cells_whose_middle_lies_inside() -> None:
    box = (0.0, 0.0, 0.4, 0.8)  # 40 x 40 pixels
    assert mask_of([TRIANGLE], box, 100, 50, cells=4) == ("###.", "##..", "#...", "....")
    hole = [[0, 0], [40, 0], [40, 40], [0, 40], [0, 0], [10, 10], [10, 30], [30, 30], [30, 10], [10, 10]]
    assert mask_of([hole], box, 100, 50, cells=4) == ("####", "#..#", "#..#", "####")
    two = [TRIANGLE, [[30, 30], [40, 30], [40, 40], [30, 40]]]  # of one thing, behind a pole
    assert mask_of(two, box, 100, 50, cells=4) == ("###.", "##..", "#...", "...#")


def test_what_tells_nothing_is_not_known() -> None:
    for outlines in ([], [[]], [[[1, 1], [9, 9]]], [[[0, 0], [40, 0], [40, 1], [0, 1]]]):
        assert mask_of(outlines, (0.0, 0.0, 0.4, 0.8), 100, 50, cells=4) == ()


def test_vcr_s_outlines(tmp_path: Path) -> None:
    line = {
        "objects": ["dog", "cat"], "img_fn": "a.jpg", "metadata_fn": "a.json", "annot_id": "train-0", "question": ["?"],
        "answer_choices": [["."]] * 4, "answer_label": 2,
    }  # fmt: skip
    known = {"names": ["dog", "cat"], "boxes": [[0, 0, 40, 40, 0.9]] * 2, "segms": [[UPPER], []],
             "width": 100, "height": 50}  # fmt: skip
    (tmp_path / "v.jsonl").write_text(json.dumps(line))
    (tmp_path / "a.json").write_text(json.dumps(known))
    (record,) = vcr.read(Wanted(), Source(tmp_path / "v.jsonl"), Source(tmp_path))
    dog, cat = record.objects
    assert dog.mask == ("#" * 14,) * 7 + ("." * 14,) * 7
    assert cat.mask == ()


def test_from_lines_of_one_s_own_to_the_store(tmp_path: Path) -> None:
    Image.new("RGB", (100, 50)).save(tmp_path / "a.png")
    Image.new("RGB", (100, 50)).save(tmp_path / "b.png")
    objects = [{"kind": "dog", "box": [0, 0, 40, 40], "outline": [UPPER]}, {"kind": "cat", "box": [50, 0, 20, 20]}]
    lines = [{"image": "a.png", "captions": ["dog"], "objects": objects}, {"image": "b.png", "captions": ["nothing"]}]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    records = jsonl.read(Wanted(tmp_path), Source(tmp_path / "mine.jsonl"))
    extract_regions(records, GroundTruth.of(records), tmp_path / "store")
    store = Store(tmp_path / "store")
    seen, empty = store.regions(0).masks, store.regions(1).masks
    assert seen is not None
    assert seen.dtype == torch.bool
    assert seen.sum((1, 2)).tolist() == [MASK_CELLS**2 // 2, MASK_CELLS**2]  # the cat fills its box
    assert empty is not None
    assert empty.shape == (0, MASK_CELLS, MASK_CELLS)
    assert store.record(0).objects == records[0].objects
    again = load_detector(tmp_path / "store" / "detector").detect([], records)
    assert torch.equal(again[0].masks, seen)  # type: ignore[arg-type]
