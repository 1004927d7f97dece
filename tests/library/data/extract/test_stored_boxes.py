"""`--stored-boxes`: boxes that were drawn on the stored pixels are turned with the image."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from diptych import Dataset
from diptych.cli import app
from diptych.core import Record
from diptych.data.check import check
from diptych.data.extract.own_data import extract_regions, read_records, refuse_changed
from diptych.data.findings import TURNED
from diptych.data.formats.table import read
from diptych.data.store.store import Store
from diptych.runtime.errors import DataError, RecipeError
from diptych.vision.detectors.open import open_detector
from diptych.vision.image_files import open_pixels

WIDTH, HEIGHT = 60, 40  # of the upright drawing
BOX = (10, 5, 30, 15)  # x1, y1, x2, y2 of the red block
UPRIGHT = (10 / WIDTH, 5 / HEIGHT, 30 / WIDTH, 15 / HEIGHT)
# How a camera stores an upright image, by EXIF's orientation.
STORED = {
    1: lambda a: a, 2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1), 6: np.rot90, 7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, -1),
}  # fmt: skip


def drawn(path: Path, orientation: int) -> tuple[list[int], tuple[int, int], list[list[int]]]:
    """Save the drawing. Return the block's box (left, top, width, height), the size, and the outline of the block
    without its top right quarter, all in stored pixels."""
    upright = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    x1, y1, x2, y2 = BOX
    upright[y1:y2, x1:x2] = 250, 0, 0
    stored = np.ascontiguousarray(STORED[orientation](upright))
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(stored).save(path, exif=exif)
    assert np.array_equal(open_pixels(path), upright)
    rows, columns = np.nonzero(stored[..., 0])
    left, top, right, bottom = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    box = [int(one) for one in (left, top, right - left, bottom - top)]
    middle = (x1 + x2) // 2, (y1 + y2) // 2
    corners = [(x1, y1), (middle[0], y1), middle, (x2, middle[1]), (x2, y2), (x1, y2)]
    return box, stored.shape[1::-1], [_stored_point(x, y, orientation) for x, y in corners]


def _stored_point(x: int, y: int, orientation: int) -> list[int]:
    """A corner of the upright pixels in the stored ones, found from those that mark the four quarters around it."""
    marked = np.zeros((HEIGHT, WIDTH), np.uint8)
    marked[:y, :x] = 1
    marked[y:, x:] = 1
    stored = STORED[orientation](marked)
    changes = [np.nonzero((np.diff(stored.astype(int), axis=axis) != 0).all(1 - axis))[0] for axis in (1, 0)]
    return [int(one[0]) + 1 for one in changes]


def lines_file(folder: Path, orientation: int, sized: bool) -> Path:
    box, size, outline = drawn(folder / "a.png", orientation)
    own: dict[str, Any] = {"image": "a.png"} | ({"width": size[0], "height": size[1]} if sized else {})
    thing = {"kind": "block", "box": box, "outline": [outline]}
    lines = [
        own | {"expression": "the red block", "box": box},
        own | {"objects": [thing], "captions": ["a block"]},
        own | {"more": {"pointing": [{"text": "left of it", "boxes": [box]}]}},
    ]
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "own.jsonl"


def coco_file(folder: Path, orientation: int) -> Path:
    box, (width, height), outline = drawn(folder / "a.png", orientation)
    found = {
        "id": 1,
        "image_id": 1,
        "category_id": 1,
        "bbox": box,
        "iscrowd": 0,
        "segmentation": [np.ravel(outline).tolist()],
    }
    content = {
        "images": [{"id": 1, "file_name": "a.png", "width": width, "height": height}],
        "annotations": [found],
        "categories": [{"id": 1, "name": "block"}],
    }
    (folder / "instances.json").write_text(json.dumps(content))
    return folder / "instances.json"


def refcoco_file(folder: Path, orientation: int) -> Path:
    instances = coco_file(folder, orientation)
    sentences = [{"sent_id": 1, "sent": "the red block"}]
    ref = {"ref_id": 1, "ann_id": 1, "image_id": 1, "split": "train", "sentences": sentences}
    (folder / "refs.json").write_text(json.dumps([ref]))
    names = {"refcoco": ["refs.json", instances.name]}
    (folder / "data.json").write_text(json.dumps(names))
    return folder / "data.json"


def assert_upright(record: Record, boxes: int) -> None:
    marked = record.marked("box")
    assert len(marked) == boxes
    for box in marked:
        assert box == pytest.approx(UPRIGHT)
    assert not [one for one in check([record], stored=True).findings if one.kind in ("boxes misplaced", TURNED)]


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("sized", [True, False])
def test_lines_are_read_upright(orientation: int, sized: bool, tmp_path: Path) -> None:
    """Boxes of expressions, objects and other tasks; masks; and the size."""
    (record,) = read(lines_file(tmp_path, orientation, sized), stored=True)
    assert record.size == (WIDTH, HEIGHT)
    assert_upright(record, boxes=3)
    (mask,) = (thing.mask for thing in record.objects)
    assert mask == ("#" * 7 + "." * 7,) * 7 + ("#" * 14,) * 7


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("made", [coco_file, refcoco_file])
def test_coco_and_refcoco_are_read_upright(orientation: int, made: Any, tmp_path: Path) -> None:
    (record,) = read(made(tmp_path, orientation), stored=True)
    assert record.size == (WIDTH, HEIGHT)
    assert_upright(record, boxes=1)


def test_sizes_of_stored_pixels_are_misplaced_without_it(tmp_path: Path) -> None:
    """Also with it, if the size is that of the upright image."""
    path = lines_file(tmp_path, 6, sized=True)
    (found,) = (one for one in check(read(path)).findings if one.kind == "boxes misplaced")
    assert "--stored-boxes" in found.way_out
    line = {"image": "a.png", "expression": "it", "box": [10, 5, 20, 10], "width": WIDTH, "height": HEIGHT}
    path.write_text(json.dumps(line))
    (found,) = (one for one in check(read(path, stored=True)).findings if one.kind == "boxes misplaced")


@pytest.mark.parametrize("orientation", STORED)
def test_tiffs_are_read_upright(orientation: int, tmp_path: Path) -> None:
    """Pillow itself turns them."""
    box, *_ = drawn(tmp_path / "a.tif", orientation)
    (tmp_path / "own.jsonl").write_text(json.dumps({"image": "a.tif", "expression": "it", "box": box}))
    (record,) = read(tmp_path / "own.jsonl", stored=True)
    assert record.size == (WIDTH, HEIGHT)
    assert_upright(record, boxes=1)


def test_an_orientation_that_exif_does_not_have_turns_nothing(tmp_path: Path) -> None:
    line = {"image": "a.png", "expression": "the red block", "box": [10, 5, 20, 10]}
    (tmp_path / "own.jsonl").write_text(json.dumps(line))
    for number in (0, 9):
        exif = Image.Exif()
        exif[0x112] = number
        Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / "a.png", exif=exif)
        (record,) = read(tmp_path / "own.jsonl", stored=True)
        assert_upright(record, boxes=1)


def test_a_store_keeps_no_boxes_of_the_other_choice(tmp_path: Path) -> None:
    path, console = lines_file(tmp_path, 3, sized=False), Console(file=io.StringIO(), width=300)
    for turned in (True, False):
        records = read_records(path, console, None, None, 0, stored=turned)
        others = read_records(path, console, None, None, 0, stored=not turned)
        finder, out = open_detector("ground-truth", records), tmp_path / f"store {turned}"
        extract_regions(records, finder, out, console, stored=turned)
        assert (Store(out).record(0).marked("box")[0] == pytest.approx(UPRIGHT)) is turned
        refuse_changed(out, records, path, finder)
        with pytest.raises(DataError, match="for boxes, --stored-boxes"):
            refuse_changed(out, others, path, finder)
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert told.count("images with boxes of stored pixels (turned or mirrored): 1 (the first: a.png)") == 2
    assert told.count(TURNED) == 1


def test_boxes_of_images_without_a_file_are_counted(tmp_path: Path) -> None:
    path, told = lines_file(tmp_path, 6, sized=True), io.StringIO()
    (tmp_path / "a.png").unlink()
    (record,) = read_records(path, Console(file=told, width=300), None, None, 0, False, stored=True)
    assert record.image is None
    assert "images with boxes but without a file (boxes not turned): 1" in told.getvalue()


def test_images_that_cannot_be_read_stay(tmp_path: Path) -> None:
    path = lines_file(tmp_path, 6, sized=True)
    (tmp_path / "a.png").write_bytes(b"no image")
    (record,) = read(path, stored=True)
    assert record.size == (HEIGHT, WIDTH)


def test_from_python(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="of stored pixels .*: 1"):
        data = Dataset.read(lines_file(tmp_path, 8, sized=False), stored_boxes=True)
    assert_upright(data.records[0], boxes=3)


def test_the_verbs(tmp_path: Path) -> None:
    path, out = lines_file(tmp_path, 6, sized=True), tmp_path / "store"
    runner = CliRunner()
    command = ["extract", str(path), "--out", str(out), "--detector", "ground-truth"]
    assert runner.invoke(app, [*command, "--stored-boxes"]).exit_code == 0
    assert Store(out).record(0).marked("box")[0] == pytest.approx(UPRIGHT)
    assert isinstance(runner.invoke(app, command).exception, DataError)
    assert "boxes misplaced" in runner.invoke(app, ["check", str(path)]).output
    checked = runner.invoke(app, ["check", str(path), "--stored-boxes"])
    assert checked.exit_code == 0
    assert TURNED not in checked.output
    assert "boxes misplaced" not in checked.output
    assert isinstance(runner.invoke(app, ["check", str(out), "--stored-boxes"]).exception, RecipeError)
